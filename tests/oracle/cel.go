package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// An expression, or the values of the variables for those that follow, or which
// functions there are.
type celQuestion struct {
	Expression string          `json:"expression"`
	Variables  json.RawMessage `json:"variables"`
	Functions  bool            `json:"functions"`
}

// What became of an expression: refused (it does not compile), failed (it
// fails when it runs), or a value; and what it cost.
type celAnswer struct {
	Refused string `json:"refused,omitempty"`
	Failed  string `json:"failed,omitempty"`
	Value   string `json:"value,omitempty"`
	Cost    uint64 `json:"cost"`
	// The compiler itself failed.
	Panicked string `json:"panicked,omitempty"`
	// The names of all functions, operators included.
	Functions []string `json:"functions,omitempty"`
}

// The variables beside those of JSON, by their types.
var typed = map[string]*cel.Type{
	"i":   cel.IntType,
	"u":   cel.UintType,
	"d":   cel.DoubleType,
	"s":   cel.StringType,
	"t":   cel.BoolType,
	"li":  cel.ListType(cel.IntType),
	"ls":  cel.ListType(cel.StringType),
	"msi": cel.MapType(cel.StringType, cel.IntType),

	"authorizer":                 library.AuthorizerType,
	"authorizer.requestResource": library.ResourceCheckType,
}

// The variables that the question gives as JSON.
var untyped = []string{"object", "oldObject", "params"}

// newCEL has the environment of the version `1.MINOR`.
func newCEL(of string) (answerer, error) {
	celVersion, err := version.ParseGeneric(of)
	if err != nil {
		return nil, err
	}
	var options []cel.EnvOption
	for name, of := range typed {
		options = append(options, cel.Variable(name, of))
	}
	for _, name := range untyped {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	set, err := environment.MustBaseEnvSet(celVersion).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        options,
	})
	if err != nil {
		return nil, err
	}
	env, err := set.Env(environment.NewExpressions)
	if err != nil {
		return nil, err
	}
	variables := variablesOf(map[string]any{})
	return answering(func(question celQuestion) celAnswer {
		if question.Functions {
			return celAnswer{Functions: slices.Sorted(maps.Keys(env.Functions()))}
		}
		if question.Variables == nil {
			return evaluate(env, question.Expression, variables)
		}
		given := map[string]any{}
		if err := utiljson.Unmarshal(question.Variables, &given); err != nil {
			return celAnswer{Refused: err.Error()}
		}
		variables = variablesOf(given)
		return celAnswer{}
	}), nil
}

func variablesOf(given map[string]any) map[string]any {
	alice := &user.DefaultInfo{Name: "user"}
	variables := map[string]any{
		"i":                          int64(5),
		"u":                          uint64(7),
		"d":                          2.5,
		"s":                          "hello",
		"t":                          true,
		"li":                         []int64{3, 1, 2},
		"ls":                         []string{"b", "a", "c"},
		"msi":                        map[string]int64{"x": 1, "y": 2},
		"authorizer":                 library.NewAuthorizerVal(alice, host{}),
		"authorizer.requestResource": library.NewResourceAuthorizerVal(alice, host{}, deployment{}),
	}
	for _, name := range untyped {
		variables[name] = given[name]
	}
	return variables
}

// What authorizer.requestResource asks about.
type deployment struct{}

func (deployment) GetName() string        { return "web" }
func (deployment) GetNamespace() string   { return "default" }
func (deployment) GetSubresource() string { return "" }
func (deployment) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}

func evaluate(env *cel.Env, expression string, variables map[string]any) (answer celAnswer) {
	defer func() {
		if cause := recover(); cause != nil {
			answer = celAnswer{Panicked: fmt.Sprint(cause)}
		}
	}()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return celAnswer{Refused: issues.String()}
	}
	program, err := env.Program(ast)
	if err != nil {
		return celAnswer{Refused: err.Error()}
	}
	value, details, err := program.Eval(variables)
	if details != nil && details.ActualCost() != nil {
		answer.Cost = *details.ActualCost()
	}
	if err == nil {
		answer.Value, err = written(value)
	}
	if err != nil {
		answer.Failed = err.Error()
	}
	return answer
}

// A host allows get, and fails for fail.
type host struct{}

func (host) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	reason := fmt.Sprintf("%s %s %s %s/%s/%s %s/%s  ", a.GetUser().GetName(), a.GetVerb(), a.GetPath(),
		a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName())
	switch a.GetVerb() {
	case "get":
		return authorizer.DecisionAllow, reason, nil
	case "fail":
		return authorizer.DecisionNoOpinion, reason, errors.New("boom")
	}
	return authorizer.DecisionNoOpinion, reason, nil
}

package main

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

type celQuestion struct {
	Expression string `json:"expression"`
}

// What became of an expression: refused (it does not compile), failed (it
// fails when it runs), or a value; and what it cost.
type celAnswer struct {
	Refused string `json:"refused,omitempty"`
	Failed  string `json:"failed,omitempty"`
	Value   string `json:"value,omitempty"`
	Cost    uint64 `json:"cost"`
}

// What kube-apiserver 1.36 compiles new expressions for.
var celVersion = version.MajorMinor(1, 35)

func newCEL() (answerer, error) {
	env, err := environment.MustBaseEnvSet(celVersion).Env(environment.NewExpressions)
	if err != nil {
		return nil, err
	}
	return of(func(question celQuestion) celAnswer {
		return evaluate(env, question)
	}), nil
}

func evaluate(env *cel.Env, question celQuestion) celAnswer {
	ast, issues := env.Compile(question.Expression)
	if issues.Err() != nil {
		return celAnswer{Refused: issues.String()}
	}
	program, err := env.Program(ast)
	if err != nil {
		return celAnswer{Refused: err.Error()}
	}
	value, details, err := program.Eval(map[string]any{})
	answer := celAnswer{}
	if details != nil && details.ActualCost() != nil {
		answer.Cost = *details.ActualCost()
	}
	if err != nil {
		answer.Failed = err.Error()
		return answer
	}
	answer.Value = fmt.Sprintf("%v", value.Value())
	return answer
}

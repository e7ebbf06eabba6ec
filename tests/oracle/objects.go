package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// scheme has the Go types of every kind that Kubernetes itself serves.
var scheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgo.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}()

type objectsQuestion struct {
	Object json.RawMessage `json:"object"`
	// How it is read: `strict` and `lenient` as JSON; `apply` as what an ApplyConfiguration
	// gave, which is not read from text.
	How string `json:"how"`
}

// The object as its Go type writes it, or what is wrong with it.
type objectsAnswer struct {
	Object json.RawMessage `json:"object,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func newObjects(string) (answerer, error) {
	return answering(func(question objectsQuestion) objectsAnswer {
		object, err := roundTrip(question)
		if err != nil {
			return objectsAnswer{Error: err.Error()}
		}
		return objectsAnswer{Object: object}
	}), nil
}

func roundTrip(question objectsQuestion) (json.RawMessage, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(question.Object, &meta); err != nil {
		return nil, err
	}
	object, err := scheme.New(meta.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	options := serializer.SerializerOptions{Strict: question.How == "strict"}
	reader := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, options)
	if question.How == "apply" {
		var from unstructured.Unstructured
		if err := from.UnmarshalJSON(question.Object); err != nil {
			return nil, err
		}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, object)
	} else {
		object, _, err = reader.Decode(question.Object, nil, object)
	}
	if err != nil {
		return nil, err
	}
	var written bytes.Buffer
	err = reader.Encode(object, &written)
	return written.Bytes(), err
}

type fieldsAnswer struct {
	Types map[string]map[string]string `json:"types"`
}

func newFields(string) (answerer, error) {
	types := fields{}
	for kind, of := range scheme.AllKnownTypes() {
		// Events of watches and options are of each group, and never admitted.
		if !strings.HasPrefix(of.PkgPath(), "k8s.io/apimachinery/") || kind.Group == "" {
			types.add(of)
		}
	}
	return answering(func(struct{}) fieldsAnswer {
		return fieldsAnswer{types}
	}), nil
}

// fields has the JSON fields of each Go struct, by the name of its definition in OpenAPI.
type fields map[string]map[string]string

func (all fields) add(of reflect.Type) {
	name := definition(of)
	if all[name] != nil {
		return
	}
	all[name] = map[string]string{}
	all.addFields(all[name], of)
}

func (all fields) addFields(own map[string]string, of reflect.Type) {
	for index := range of.NumField() {
		field := of.Field(index)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && field.Anonymous:
			all.addFields(own, field.Type)
		default:
			own[name] = omission(field.Type, strings.Split(options, ",")) + all.word(field.Type)
		}
	}
}

// omission is `?` for a field that is not written while it is empty.
func omission(of reflect.Type, options []string) string {
	for _, option := range options {
		// encoding/json never takes a struct for empty.
		if option == "omitzero" || option == "omitempty" && of.Kind() != reflect.Struct {
			return "?"
		}
	}
	return ""
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// word is how crates/policy/src/admission/apply/schema.txt writes a type, without how it
// merges; `*` is a pointer.
func (all fields) word(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[resource.Quantity]():
		return "quantity"
	case reflect.TypeFor[metav1.Time]():
		return "time"
	case reflect.TypeFor[metav1.MicroTime]():
		return "microtime"
	case reflect.TypeFor[metav1.Duration]():
		return "duration"
	case reflect.TypeFor[intstr.IntOrString]():
		return "intstr"
	}
	switch of.Kind() {
	case reflect.Pointer:
		return "*" + all.word(of.Elem())
	case reflect.Map:
		if of.Key().Kind() != reflect.String || of.Key().Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			panic(fmt.Sprint("keys of ", of))
		}
		return "{" + all.word(of.Elem()) + "}"
	}
	switch {
	case reflect.PointerTo(of).Implements(unmarshaler) || of.Kind() == reflect.Interface:
		return "any"
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		return "bytes"
	}
	switch of.Kind() {
	case reflect.Slice:
		return "[" + all.word(of.Elem()) + "]"
	case reflect.Struct:
		all.add(of)
		return definition(of)
	case reflect.String:
		return "str"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "i32"
	case reflect.Int, reflect.Int64:
		return "i64"
	case reflect.Float64:
		return "f64"
	}
	panic(fmt.Sprint("no word for ", of))
}

// definition is the name of the type in OpenAPI: io.k8s.api.core.v1.Pod of k8s.io/api/core/v1.Pod.
func definition(of reflect.Type) string {
	host, path, _ := strings.Cut(of.PkgPath(), "/")
	first, second, _ := strings.Cut(host, ".")
	return strings.Join([]string{second, first, strings.ReplaceAll(path, "/", "."), of.Name()}, ".")
}

// Kyverno's engine as a program: a policy and a request in, the verdict and the patched object out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/engine/policycontext"
	imageverifycache "github.com/kyverno/kyverno/pkg/image/verification/cache"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

type question struct {
	Policy          kyvernov1.ClusterPolicy      `json:"policy"`
	Request         admissionv1.AdmissionRequest `json:"request"`
	NamespaceLabels map[string]string            `json:"namespaceLabels"`
	ConfigMaps      []corev1.ConfigMap           `json:"configMaps"`
}

type resolver []corev1.ConfigMap

func (r resolver) Get(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	for i := range r {
		if r[i].Namespace == namespace && r[i].Name == name {
			return &r[i], nil
		}
	}
	return nil, fmt.Errorf("configmap %s/%s not found", namespace, name)
}

type rule struct {
	Name    string `json:"name"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

type answer struct {
	Error   string          `json:"error,omitempty"`
	Rules   []rule          `json:"rules"`
	Patched json.RawMessage `json:"patched,omitempty"`
}

func ask(line []byte) (out answer) {
	defer func() {
		if r := recover(); r != nil {
			out = answer{Error: fmt.Sprint("panic: ", r)}
		}
	}()
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return answer{Error: err.Error()}
	}
	cfg := config.NewDefaultConfiguration(false)
	jp := jmespath.New(cfg)
	info := kyvernov2.RequestInfo{AdmissionUserInfo: q.Request.UserInfo}
	pc, err := policycontext.NewPolicyContextFromAdmissionRequest(jp, q.Request, info, schema.GroupVersionKind(q.Request.Kind), cfg)
	if err != nil {
		return answer{Error: err.Error()}
	}
	pc = pc.WithPolicy(&q.Policy).WithNamespaceLabels(q.NamespaceLabels)
	var cm engineapi.ConfigmapResolver = resolver(q.ConfigMaps)
	e := engine.NewEngine(cfg, jp, nil, factories.DefaultRegistryClientFactory(nil, nil),
		imageverifycache.DisabledImageVerifyCache(), factories.DefaultContextLoaderFactory(cm), nil, nil)
	var response engineapi.EngineResponse
	mutates := false
	for _, r := range q.Policy.Spec.Rules {
		mutates = mutates || r.HasMutate()
	}
	if mutates {
		response = e.Mutate(context.Background(), pc)
		patched := response.PatchedResource
		if patched.Object != nil {
			out.Patched, _ = json.Marshal(patched.Object)
		}
	} else {
		response = e.Validate(context.Background(), pc)
	}
	for _, r := range response.PolicyResponse.Rules {
		out.Rules = append(out.Rules, rule{r.Name(), string(r.Status()), r.Message()})
	}
	return out
}

func main() {
	log.SetLogger(logr.Discard())
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<26)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		line, _ := json.Marshal(ask(in.Bytes()))
		fmt.Fprintln(out, string(line))
	}
}

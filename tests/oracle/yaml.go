package main

import (
	"encoding/json"

	"sigs.k8s.io/yaml"
)

type yamlQuestion struct {
	Text string `json:"text"`
}

// Either the document as JSON or what is wrong with it.
type yamlAnswer struct {
	JSON  json.RawMessage `json:"json,omitempty"`
	Error string          `json:"error,omitempty"`
}

func newYAML() (answerer, error) {
	return of(func(question yamlQuestion) yamlAnswer {
		converted, err := yaml.YAMLToJSON([]byte(question.Text))
		if err != nil {
			return yamlAnswer{Error: err.Error()}
		}
		return yamlAnswer{JSON: converted}
	}), nil
}

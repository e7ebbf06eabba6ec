package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	stream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

type yamlQuestion struct {
	Text string `json:"text"`
}

// What kubectl reads, document by document, or what it says is wrong.
type yamlAnswer struct {
	Documents []json.RawMessage `json:"documents"`
	// Whether each document is also read strictly: with no key set twice.
	Strict bool   `json:"strict,omitempty"`
	Error  string `json:"error,omitempty"`
}

func newYAML(string) (answerer, error) {
	return answering(func(question yamlQuestion) (answer yamlAnswer) {
		// go-yaml panics on some texts; kubectl ends there.
		defer func() {
			if cause := recover(); cause != nil {
				answer = yamlAnswer{Error: fmt.Sprint("panic: ", cause)}
			}
		}()
		documents, err := readStream(question.Text)
		if err != nil {
			return yamlAnswer{Error: err.Error()}
		}
		return yamlAnswer{Documents: documents, Strict: isStrict(question.Text)}
	}), nil
}

// readStream reads as kubectl's visitor of files does, and leaves out what is empty.
func readStream(text string) ([]json.RawMessage, error) {
	decoder := stream.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	documents := []json.RawMessage{}
	for {
		var extension runtime.RawExtension
		err := decoder.Decode(&extension)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if extension.Raw == nil {
			continue
		}
		// What is JSON already was not decoded.
		var value any
		if err := json.Unmarshal(extension.Raw, &value); err != nil {
			return nil, err
		}
		documents = append(documents, extension.Raw)
	}
}

// isStrict tells whether the text is one document, or documents between lines
// that begin with ---, none of which sets a key twice.
func isStrict(text string) bool {
	for _, document := range strings.Split("\n"+text, "\n---") {
		if _, behind, found := strings.Cut(document, "\n"); found {
			if _, err := yaml.YAMLToJSONStrict([]byte(behind)); err != nil {
				return false
			}
		}
	}
	return true
}

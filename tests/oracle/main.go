// Command oracle answers questions as Kubernetes would, one JSON object a line
// on the standard input, its answer a line on the standard output. The first
// argument says what is asked about:
//
//	oracle regex         Go's regular expressions
//	oracle cel VERSION   expressions in the environment that this kube-apiserver has for
//	                     VERSION, such as 1.36
//	oracle yaml          YAML as sigs.k8s.io/yaml reads it
//	oracle objects       objects as their Go types read and write them
//	oracle fields        the fields of these types
//	oracle pod-security  pods, and the checks of Pod Security that refuse them
//	oracle tables        the Unicode tables of Go's regular expressions
//
// `oracle write-tables` asks nothing: it writes those tables.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// An answerer makes an answer of a question, both of its own shape.
type answerer func(question []byte) (any, error)

// Each takes the second argument, if there is one.
var answerers = map[string]func(string) (answerer, error){
	"cel":          newCEL,
	"fields":       newFields,
	"objects":      newObjects,
	"pod-security": newPodSecurity,
	"regex":        newRegex,
	"tables":       newTables,
	"yaml":         newYAML,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 1 && arguments[0] == "write-tables" {
		return writeTables(os.Stdout)
	}
	if len(arguments) == 0 || answerers[arguments[0]] == nil || len(arguments) > 2 {
		return fmt.Errorf("cel VERSION, fields, objects, pod-security, regex, tables or yaml is asked about, not %q", arguments)
	}
	parameter := ""
	if len(arguments) == 2 {
		parameter = arguments[1]
	}
	answer, err := answerers[arguments[0]](parameter)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 {
			// The end of the input.
			return out.Flush()
		}
		if err != nil {
			return fmt.Errorf("a question that no line feed ends: %w", err)
		}
		answered, err := answer(line)
		if err != nil {
			return fmt.Errorf("%w: %s", err, line)
		}
		if err := encoder.Encode(answered); err != nil {
			return err
		}
		// Nobody waits for an answer while further questions are there.
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// answering turns a function of a question and an answer into an answerer.
func answering[Q, A any](answer func(Q) A) answerer {
	return func(line []byte) (any, error) {
		var question Q
		if err := json.Unmarshal(line, &question); err != nil {
			return nil, err
		}
		return answer(question), nil
	}
}

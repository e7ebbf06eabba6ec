package main

import (
	"regexp"
)

// What is asked of a pattern: what it finds in each text. Pattern and texts
// are bytes (base64 in JSON), since they need not be UTF-8.
type regexQuestion struct {
	Pattern []byte   `json:"pattern"`
	Texts   [][]byte `json:"texts"`
}

// Either the error of compiling or, for each text, every match as start and end.
type regexAnswer struct {
	Error string    `json:"error,omitempty"`
	Found [][][]int `json:"found,omitempty"`
}

func newRegex(string) (answerer, error) {
	return answering(func(question regexQuestion) regexAnswer {
		pattern, err := regexp.Compile(string(question.Pattern))
		if err != nil {
			return regexAnswer{Error: err.Error()}
		}
		found := make([][][]int, len(question.Texts))
		for i, text := range question.Texts {
			found[i] = pattern.FindAllIndex(text, -1)
			if found[i] == nil {
				found[i] = [][]int{}
			}
		}
		return regexAnswer{Found: found}
	}), nil
}

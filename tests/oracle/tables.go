package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

type tablesAnswer struct {
	Text string `json:"text"`
}

func newTables(string) (answerer, error) {
	var text strings.Builder
	if err := writeTables(&text); err != nil {
		return nil, err
	}
	return answering(func(struct{}) tablesAnswer {
		return tablesAnswer{text.String()}
	}), nil
}

// writeTables writes the Unicode tables that Go's regular expressions know, as
// crates/cel/src/regex/unicode.txt holds them.
func writeTables(to io.Writer) error {
	out := bufio.NewWriter(to)
	fmt.Fprintln(out, "# Unicode", unicode.Version, "as Go's regular expressions know it: what each name in \\p{…} stands for.")
	fmt.Fprintln(out, "# Written by tests/oracle/write-tables.")
	fmt.Fprintln(out, "#")
	fmt.Fprintln(out, "# class NAME: characters, as LOW, LOW-HIGH or LOW-HIGH/STEP, hexadecimal")
	fmt.Fprintln(out, "# fold NAME: what (?i) adds to the class")
	fmt.Fprintln(out, "# alias NAME: another name of a class")
	fmt.Fprintln(out, "# orbit: characters that (?i) holds for the same")
	classes(out, unicode.Categories, unicode.FoldCategory)
	classes(out, unicode.Scripts, unicode.FoldScript)
	for _, alias := range slices.Sorted(maps.Keys(unicode.CategoryAliases)) {
		if known(alias) {
			fmt.Fprintf(out, "alias %s %s\n", canonical(alias), canonical(unicode.CategoryAliases[alias]))
		}
	}
	orbits(out)
	return out.Flush()
}

func classes(out io.Writer, tables, folds map[string]*unicode.RangeTable) {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		if !known(name) {
			continue
		}
		fmt.Fprintf(out, "class %s%s\n", canonical(name), ranges(tables[name]))
		if fold := folds[name]; fold != nil {
			fmt.Fprintf(out, "fold %s%s\n", canonical(name), ranges(fold))
		}
	}
}

func known(name string) bool {
	_, err := regexp.Compile(`\p{` + name + `}`)
	return err == nil
}

// canonical is how a name is looked up.
func canonical(name string) string {
	name = strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
	return strings.ToUpper(name[:1]) + name[1:]
}

func ranges(table *unicode.RangeTable) string {
	var text strings.Builder
	add := func(low, high, step uint32) {
		switch {
		case low == high:
			fmt.Fprintf(&text, " %x", low)
		case step == 1:
			fmt.Fprintf(&text, " %x-%x", low, high)
		default:
			fmt.Fprintf(&text, " %x-%x/%x", low, high, step)
		}
	}
	for _, of := range table.R16 {
		add(uint32(of.Lo), uint32(of.Hi), uint32(of.Stride))
	}
	for _, of := range table.R32 {
		add(of.Lo, of.Hi, of.Stride)
	}
	return text.String()
}

func orbits(out io.Writer) {
	for first := rune(0); first <= unicode.MaxRune; first++ {
		orbit := []rune{first}
		for next := unicode.SimpleFold(first); next != first; next = unicode.SimpleFold(next) {
			orbit = append(orbit, next)
		}
		if len(orbit) > 1 && slices.Min(orbit) == first {
			fmt.Fprint(out, "orbit")
			for _, member := range orbit {
				fmt.Fprintf(out, " %x", member)
			}
			fmt.Fprintln(out)
		}
	}
}

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// written is a value as text that tells any two values apart, types included.
func written(value ref.Val) (string, error) {
	switch value := value.(type) {
	case types.Null:
		return "null", nil
	case types.Bool:
		return fmt.Sprint(bool(value)), nil
	case types.Int:
		return fmt.Sprint(int64(value)), nil
	case types.Uint:
		return fmt.Sprintf("%du", uint64(value)), nil
	case types.Double:
		if math.IsNaN(float64(value)) {
			return "NaN", nil
		}
		return fmt.Sprintf("double(%016x)", math.Float64bits(float64(value))), nil
	case types.String:
		return quoted(string(value)), nil
	case types.Bytes:
		return fmt.Sprintf("b%x", []byte(value)), nil
	case types.Duration:
		return fmt.Sprintf("duration(%d)", value.Nanoseconds()), nil
	case types.Timestamp:
		return fmt.Sprintf("timestamp(%d,%d)", value.Unix(), value.Nanosecond()), nil
	case *types.Optional:
		if !value.HasValue() {
			return "none", nil
		}
		inner, err := written(value.GetValue())
		return "optional(" + inner + ")", err
	case *types.Type:
		return "type(" + value.TypeName() + ")", nil
	case *types.Err:
		return "", value
	case traits.Lister:
		return writtenList(value)
	case traits.Mapper:
		return writtenMap(value)
	}
	return value.Type().TypeName(), nil
}

func writtenList(list traits.Lister) (string, error) {
	var items []string
	for i := list.Iterator(); i.HasNext() == types.True; {
		item, err := written(i.Next())
		if err != nil {
			return "", err
		}
		items = append(items, item)
	}
	return "[" + strings.Join(items, ",") + "]", nil
}

func writtenMap(of traits.Mapper) (string, error) {
	var entries []string
	for i := of.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		name, err := written(key)
		if err != nil {
			return "", err
		}
		item, err := written(of.Get(key))
		if err != nil {
			return "", err
		}
		entries = append(entries, name+":"+item)
	}
	slices.Sort(entries)
	return "{" + strings.Join(entries, ",") + "}", nil
}

func quoted(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range text {
		if c >= ' ' && c <= '~' && c != '"' && c != '\\' {
			out.WriteRune(c)
		} else {
			fmt.Fprintf(&out, `\u{%x}`, c)
		}
	}
	out.WriteByte('"')
	return out.String()
}

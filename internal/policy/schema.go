package policy

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schemaFile []byte

// Schema returns the JSON Schema (draft 2020-12) of policy files. What it refuses Parse
// refuses; Parse also sees what no schema can say: rules that never match, addresses
// that are out of reach.
func Schema() []byte { return slices.Clone(schemaFile) }

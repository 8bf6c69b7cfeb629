package policy

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schemaFile []byte

// Schema returns the JSON Schema (draft 2020-12) of policy files. Parse refuses everything that the
// schema refuses. It also finds errors that no schema can express: rules that never match, and
// addresses that are out of reach.
func Schema() []byte { return slices.Clone(schemaFile) }

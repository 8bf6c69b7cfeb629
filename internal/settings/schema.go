package settings

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schemaFile []byte

// Schema returns the JSON Schema of run.yaml and .carrel.yaml.
func Schema() []byte { return slices.Clone(schemaFile) }

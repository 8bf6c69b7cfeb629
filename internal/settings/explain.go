package settings

// Explain says the whole box in words, a line each, grouped; sources adds where each came from.
func (b *Box) Explain(sources bool) []string { return nil }

// Schema is the JSON Schema of run.yaml and .carrel.yaml.
func Schema() []byte { return nil }

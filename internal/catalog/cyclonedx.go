package catalog

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/carrel-dev/carrel"
)

// The parts of a CycloneDX document that a bill of materials needs. See
// https://cyclonedx.org/docs/1.6/json.
type (
	bom struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Serial     string      `json:"serialNumber"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version,omitempty"`
		PURL       string     `json:"purl,omitempty"`
		Licenses   []license  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	license struct {
		License naming `json:"license"`
	}
	naming struct {
		Name string `json:"name"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// CycloneDX writes a bill of materials in JSON. Equal templates give equal bytes: there is no time
// in it, and its serial number is made of its content.
func CycloneDX(t carrel.TemplatePackages) ([]byte, error) {
	out := bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Components: []component{}}
	out.Metadata.Component = component{Type: "container", Ref: "template", Name: t.Template,
		Version: t.Digest}
	if t.System != "" {
		out.Metadata.Component.Properties = []property{{"carrel:system", t.System}}
	}
	for i, p := range t.Packages {
		c := component{Type: "library", Ref: fmt.Sprintf("%s#%d", p.URL, i), Name: p.Name,
			Version: p.Version, PURL: p.URL,
			Properties: []property{{"carrel:path", p.Path}}}
		if p.License != "" {
			c.Licenses = []license{{naming{p.License}}}
		}
		out.Components = append(out.Components, c)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	s := sha256.Sum256(raw)
	// A UUID of version 8 holds bits of the maker's choice.
	s[6], s[8] = s[6]&0x0f|0x80, s[8]&0x3f|0x80
	out.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", s[:4], s[4:6], s[6:8], s[8:10], s[10:16])
	raw, err = json.MarshalIndent(out, "", "  ")
	return append(raw, '\n'), err
}

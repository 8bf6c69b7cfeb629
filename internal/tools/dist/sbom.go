package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/notices"
)

// writeSBOM writes the bill of materials of a program, in CycloneDX's form. Go's linker noted the
// modules in the binary and in the programs inside it. The interpreters are no modules; they come
// from the notices.
func (r *release) writeSBOM(ctx context.Context, p platform, program string) error {
	var bill map[string]any
	seen := map[string]bool{}
	for _, binary := range binaries(p, program) {
		part, err := r.bill(ctx, binary)
		if err != nil {
			return err
		}
		own, _ := part["components"].([]any)
		if bill == nil {
			bill = part
			bill["components"] = []any{}
		}
		if err := addComponents(bill, own, seen); err != nil {
			return err
		}
	}
	if p.os == "linux" {
		if err := addInterpreters(bill, seen); err != nil {
			return err
		}
	}
	delete(bill, "serialNumber") // drawn by chance
	delete(bill, "dependencies") // of one binary only
	raw, err := json.MarshalIndent(bill, "", "  ")
	if err != nil {
		return err
	}
	name := "carrel_" + r.version + "_" + p.file() + ".cdx.json"
	tmp := filepath.Join(r.work, name)
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return r.keep(tmp, name)
}

// binaries returns the program and the programs inside it.
func binaries(p platform, program string) []string {
	all := []string{program}
	if p.os == "linux" {
		for _, name := range []string{"carrel-guest", "carrel-sudo", "carrel-box", "carrel-sentry", "carrel-init"} {
			all = append(all, filepath.Join(filepath.Dir(program), name))
		}
	}
	return all
}

// bill returns the pinned tool's output for one binary.
func (r *release) bill(ctx context.Context, binary string) (map[string]any, error) {
	out := binary + ".cdx.json"
	if err := run(ctx, nil, "bin/cyclonedx-gomod", "bin", "-json", "-noserial", "-std", "-version", "v"+r.version, "-output", out, binary); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var bill map[string]any
	if err := json.Unmarshal(raw, &bill); err != nil {
		return nil, err
	}
	meta, ok := bill["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("the bill of materials has no metadata")
	}
	meta["timestamp"] = r.when.Format("2006-01-02T15:04:05Z")
	return bill, nil
}

// addComponents adds the components that bill does not have yet.
func addComponents(bill map[string]any, own []any, seen map[string]bool) error {
	all, _ := bill["components"].([]any)
	for _, c := range own {
		ref, _ := c.(map[string]any)["purl"].(string)
		if ref == "" {
			return fmt.Errorf("a component has no package URL: %v", c)
		}
		// References to one module differ only after "?", by system and processor.
		key, _, _ := strings.Cut(ref, "?")
		if !seen[key] {
			seen[key] = true
			all = append(all, c)
		}
	}
	bill["components"] = all
	return nil
}

// addInterpreters adds the notices that belong to no module.
func addInterpreters(bill map[string]any, seen map[string]bool) error {
	list, err := notices.All()
	if err != nil {
		return err
	}
	all, _ := bill["components"].([]any)
	for _, n := range list {
		if strings.Contains(n.Name, "/") || strings.Contains(n.Name, "standard library") {
			continue
		}
		ref := "pkg:generic/" + strings.ToLower(n.Name) + "@" + n.Version
		if seen[ref] {
			continue
		}
		seen[ref] = true
		licenses := []any{}
		for _, l := range slices.Clone(n.Licenses) {
			licenses = append(licenses, map[string]any{"license": map[string]any{"id": l}})
		}
		all = append(all, map[string]any{
			"type": "application", "bom-ref": ref, "purl": ref, "name": n.Name, "version": n.Version, "licenses": licenses,
		})
	}
	bill["components"] = all
	return nil
}

package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel"
)

const (
	opPrices = "read price list"
	// maxPriceFile bounds a price list, in bytes.
	maxPriceFile = 1 << 20
	// maxRate is the highest price, in millionths.
	maxRate = 1_000_000 * 1_000_000
	// maxCurrency bounds the currency's name, in bytes.
	maxCurrency = 16
)

// knownTiers are the tiers that a price list may name.
var knownTiers = []carrel.Tier{carrel.Sim, carrel.NS, carrel.GVisor, carrel.MicroVM}

// LoadPrices reads a price list from a file of YAML or JSON. Errors: Invalid with the field,
// NotFound, Internal.
func LoadPrices(path string) (*Prices, error) {
	f, err := os.Open(path)
	if err != nil {
		kind := carrel.Internal
		if errors.Is(err, os.ErrNotExist) {
			kind = carrel.NotFound
		}
		return nil, &carrel.Error{Op: opPrices, Kind: kind, Field: "price-file", Err: err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPriceFile+1))
	if err != nil {
		return nil, &carrel.Error{Op: opPrices, Kind: carrel.Internal, Field: "price-file", Err: err}
	}
	p, err := ParsePrices(text)
	if ce, ok := errors.AsType[*carrel.Error](err); ok {
		ce.Err = fmt.Errorf("%s: %w", path, ce.Err)
	}
	return p, err
}

// ParsePrices reads a price list. Numbers are decimals with at most six digits after the point, so
// none is rounded. Error: Invalid with the field.
func ParsePrices(text []byte) (*Prices, error) {
	if len(text) > maxPriceFile {
		return nil, badPrice("", "the file has more than %d bytes", maxPriceFile)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, badPrice("", "%v", err)
	}
	if len(doc.Content) != 1 {
		return nil, badPrice("", "the list is empty")
	}
	p := &Prices{Tiers: map[carrel.Tier]Rates{}}
	rated := false
	err := eachField("", doc.Content[0], func(name string, v *yaml.Node) (err error) {
		switch name {
		case "currency":
			p.Currency, err = currency(v)
		case "rates":
			rated = true
			err = readRates(name, v, &p.Default)
		case "tiers":
			err = eachField(name, v, func(tier string, v *yaml.Node) error {
				path := "tiers." + tier
				if !slices.Contains(knownTiers, carrel.Tier(tier)) {
					return badPrice(path, "there is no such tier: one of %v", knownTiers)
				}
				r := Rates{}
				err := readRates(path, v, &r)
				p.Tiers[carrel.Tier(tier)] = r
				return err
			})
		case "pool":
			if v.Kind != yaml.ScalarNode || v.Tag != "!!bool" || v.Decode(&p.Pool) != nil {
				err = badPrice(name, "%.40q is neither true nor false", v.Value)
			}
		default:
			err = badPrice(name, "there is no such field: one of currency, rates, tiers, pool")
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case p.Currency == "":
		return nil, badPrice("currency", "missing: such as EUR")
	case !rated:
		return nil, badPrice("rates", "missing")
	}
	return p, nil
}

// currency reads the currency's name.
func currency(v *yaml.Node) (string, error) {
	bad := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if v.Kind != yaml.ScalarNode || v.Value == "" || len(v.Value) > maxCurrency || strings.ContainsFunc(v.Value, bad) {
		return "", badPrice("currency", "%.40q is not 1 to %d letters, such as EUR", v.Value, maxCurrency)
	}
	return v.Value, nil
}

// readRates reads the rates of all tiers or of one.
func readRates(path string, v *yaml.Node, r *Rates) error {
	fields := map[string]*carrel.Micro{
		"vcpu-hour": &r.VCPUHour, "memory-gib-hour": &r.MemoryGiBHour, "cpu-hour": &r.CPUHour,
		"memory-used-gib-hour": &r.MemoryUsedHour, "egress-gb": &r.EgressGB, "snapshot-gb-month": &r.SnapshotGBMonth,
	}
	return eachField(path, v, func(name string, v *yaml.Node) error {
		into, known := fields[name]
		path := path + "." + name
		if !known {
			return badPrice(path, "there is no such rate: one of vcpu-hour, memory-gib-hour, cpu-hour, "+
				"memory-used-gib-hour, egress-gb, snapshot-gb-month")
		}
		n, err := carrel.ParseMicro(v.Value)
		switch {
		case v.Kind != yaml.ScalarNode || err != nil:
			return badPrice(path, "%.40q is not a decimal number with at most six digits after the point", v.Value)
		case n < 0 || n > maxRate:
			return badPrice(path, "%s is not between 0 and 1000000", n)
		}
		*into = n
		return nil
	})
}

// eachField calls fn for the fields of an object. No field may be there twice.
func eachField(path string, v *yaml.Node, fn func(name string, v *yaml.Node) error) error {
	if v.Kind != yaml.MappingNode {
		return badPrice(path, "it is not an object with fields")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(v.Content); i += 2 {
		name := v.Content[i].Value
		if seen[name] {
			return badPrice(strings.TrimPrefix(path+"."+name, "."), "it is there twice")
		}
		seen[name] = true
		if err := fn(name, v.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// badPrice is the error about one field of a price list.
func badPrice(field, format string, args ...any) error {
	if len(field) > 80 {
		field = field[:80]
	}
	err := fmt.Errorf(format, args...)
	if field != "" {
		err = fmt.Errorf("%s: %w", field, err)
	}
	return &carrel.Error{Op: opPrices, Kind: carrel.Invalid, Field: field, Err: err,
		Hint: "docs/usage.md has an example"}
}

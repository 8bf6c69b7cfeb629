package config

import (
	"errors"
	"testing"

	"github.com/carrel-dev/carrel"
)

func TestParseFloor(t *testing.T) {
	for _, c := range []struct {
		text string
		want Floor
		ok   bool
	}{
		{"base=5", Floor{Template: "base", Count: 5}, true},
		{"py:2:1024=20", Floor{Template: "py", CPUs: 2, MemoryMB: 1024, Count: 20}, true},
		{"py:0.5:0=1", Floor{Template: "py", CPUs: 0.5, Count: 1}, true},
		{"team/py:v2=3", Floor{Template: "team/py:v2", Count: 3}, true},
		{"team/py:v2:1:512=3", Floor{Template: "team/py:v2", CPUs: 1, MemoryMB: 512, Count: 3}, true},
		{"base=0", Floor{Template: "base"}, true},
		{"base", Floor{}, false},
		{"=5", Floor{}, false},
		{"base=", Floor{}, false},
		{"base=-1", Floor{}, false},
		{"base=1e9", Floor{}, false},
		{"base=99999", Floor{}, false},
		{":1:1=5", Floor{}, false},
		{"base:-1:512=5", Floor{}, false},
		{"base:NaN:512=5", Floor{}, false},
		{"base:1:-512=5", Floor{}, false},
		{"base:1:4=5", Floor{}, false},
		{"base:0.001:512=5", Floor{}, false},
		{"", Floor{}, false},
	} {
		got, err := ParseFloor(c.text)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
		if err != nil && !errors.Is(err, carrel.Invalid) {
			t.Errorf("%q: %v is not Invalid", c.text, err)
		}
		if err == nil {
			if again, err := ParseFloor(got.String()); err != nil || again != got {
				t.Errorf("%q: written %q, read %+v, %v", c.text, got, again, err)
			}
		}
	}
}

func TestWarmSettings(t *testing.T) {
	for name, set := range map[string]func(*Config){
		"negative":          func(c *Config) { c.Warm.Cap = -1 },
		"absurd":            func(c *Config) { c.Warm.Cap = 1 << 20 },
		"floors over it":    func(c *Config) { c.Warm.Floors = Floors{{Template: "base", Count: 9}} },
		"floors and no cap": func(c *Config) { c.Warm = Warm{Floors: Floors{{Template: "base", Count: 1}}} },
	} {
		c := Default()
		set(&c)
		if err := c.Validate(); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	env := map[string]string{"CARREL_WARM": "20", "CARREL_WARM_FLOOR": "base=5, py:1:256=2"}
	c := Default()
	if err := applyEnv(&c, func(k string) string { return env[k] }); err != nil {
		t.Fatal(err)
	}
	if c.Warm.Cap != 20 || c.Warm.Floors.String() != "base=5,py:1:256=2" {
		t.Errorf("read %+v", c.Warm)
	}
	for k, v := range map[string]string{"CARREL_WARM": "many", "CARREL_WARM_FLOOR": "base"} {
		c := Default()
		err := applyEnv(&c, func(name string) string {
			if name == k {
				return v
			}
			return ""
		})
		if e := (*carrel.Error)(nil); !errors.As(err, &e) || e.Field != k {
			t.Errorf("%s: %v", k, err)
		}
	}
}

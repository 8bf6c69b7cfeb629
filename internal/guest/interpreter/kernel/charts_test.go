package kernel_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

// plots are figures and what E2B's clients expect of their charts: fields that must have a value.
var plots = []struct {
	name, code, want string
}{
	{"line", `
days = [datetime.datetime(2024, 9, d) for d in (1, 2)]
plt.plot(days, [1, 2.5], label='load'); plt.plot(days, [3, float('nan')]); plt.axhline(2)
plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('Amplitude [Hz]')`,
		`{"type": "line", "title": "T", "x_label": "Time (s)", "x_unit": "s", "y_unit": "Hz",
		"x_scale": "datetime", "y_scale": "linear", "elements": [
		{"label": "load", "points": [["2024-09-01T00:00:00", 1], ["2024-09-02T00:00:00", 2.5]]},
		{"label": "", "points": [["2024-09-01T00:00:00", 3], ["2024-09-02T00:00:00", null]]}]}`},
	{"categories", `plt.plot(['a', 'b'], [1, 2])`,
		`{"type": "line", "x_scale": "categorical", "x_ticks": ["a", "b"], "x_tick_labels": ["a", "b"],
		"elements": [{"label": "", "points": [["a", 1], ["b", 2]]}]}`},
	{"scatter", `plt.scatter([1, 2], [3, 400], label='p'); plt.yscale('log')`,
		`{"type": "scatter", "y_scale": "log", "x_label": null, "x_unit": null,
		"elements": [{"label": "p", "points": [[1, 3], [2, 400]]}]}`},
	{"bars", `
plt.bar([0, 1], [1, 2], .3, label='m'); plt.bar([.3, 1.3], [3, 4], .3)
plt.xticks([.15, 1.15], ['p', 'q'])`,
		`{"type": "bar", "elements": [{"label": "p", "group": "m", "value": 1},
		{"label": "q", "group": "m", "value": 2}, {"label": "p", "group": "", "value": 3},
		{"label": "q", "group": "", "value": 4}]}`},
	{"horizontal bars", `plt.barh(['a', 'b'], [3, 4])`,
		`{"type": "bar", "elements": [{"label": "a", "group": "", "value": 3},
		{"label": "b", "group": "", "value": 4}]}`},
	{"pie", `plt.pie([1, 3], labels=['q', 'r'], autopct='%1.0f')`,
		`{"type": "pie", "elements": [{"label": "q", "angle": 90, "radius": 1},
		{"label": "r", "angle": 270, "radius": 1}]}`},
	{"boxes", `plt.boxplot([[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 87]])`, boxes},
	{"filled boxes", `plt.boxplot([[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 87]], patch_artist=True)`,
		boxes},
	{"notched boxes", `plt.boxplot([[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 87]], notch=True)`, boxes},
	{"several", `
f, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.pie([1]); f.suptitle('S')`,
		`{"type": "superchart", "title": "S"}`},
	{"surface", `plt.imshow([[1, 2], [3, 4]])`, `{"type": "unknown", "elements": []}`},
	{"empty", `plt.figure()`, `null`},
	{"too much", `plt.plot(range(60_000))`, `null`},
}

const boxes = `{"type": "box_and_whisker", "elements": [
	{"label": "1", "min": 78, "first_quartile": 85, "median": 88, "third_quartile": 90, "max": 92,
	"outliers": []},
	{"label": "2", "min": 84, "first_quartile": 84.75, "median": 88, "third_quartile": 90.5, "max": 95,
	"outliers": [76]}]}`

func TestCharts(t *testing.T) {
	k := flavours[0].start(t)
	if o := code(t, k, "import datetime, matplotlib.pyplot as plt"); o.failure != nil {
		t.Fatalf("%+v", o.failure)
	}
	for _, p := range plots {
		t.Run(p.name, func(t *testing.T) {
			o := code(t, k, "plt.close('all')\n"+p.code+"\nplt.show()")
			if o.failure != nil || len(o.results) != 1 {
				t.Fatalf("%+v", o)
			}
			if png := plain(o.results[0], "image/png"); !strings.HasPrefix(png, "iVBOR") && p.name != "empty" {
				t.Errorf("no picture: %.20q", png)
			}
			var want, got map[string]any
			if err := json.Unmarshal([]byte(p.want), &want); err != nil {
				t.Fatal(err)
			}
			raw, ok := o.results[0].Data["e2b/chart"]
			if ok && json.Unmarshal(raw, &got) != nil || ok != (want != nil) {
				t.Fatalf("chart %s", raw)
			}
			for field := range want {
				if !reflect.DeepEqual(got[field], want[field]) {
					t.Errorf("%s is %v, want %v", field, got[field], want[field])
				}
			}
		})
	}
}

func TestTables(t *testing.T) {
	k := flavours[0].start(t)
	o := code(t, k, `import pandas as pd
pd.DataFrame({'n': [1, 2], 's': ['x', None], 't': pd.to_datetime(['2024-01-02', None]), 3: [1.5, float('inf')]})`)
	if o.failure != nil || len(o.results) != 1 {
		t.Fatalf("%+v", o)
	}
	var got any
	_ = json.Unmarshal(o.results[0].Data["e2b/data"], &got)
	want := map[string]any{"n": []any{1.0, 2.0}, "s": []any{"x", nil},
		"t": []any{"2024-01-02T00:00:00", nil}, "3": []any{1.5, nil}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if !strings.Contains(plain(o.results[0], "text/html"), "<table") {
		t.Error("no HTML")
	}
}

// TestForms shows values whose own code fails or lies about their forms.
func TestForms(t *testing.T) {
	each(t, map[string]string{"ipykernel": "", "plain python": ""},
		func(t *testing.T, k kernel.Kernel, _ string) {
			o := code(t, k, `class Liar:
    def _repr_html_(self): return '<b>h</b>'
    def _repr_latex_(self): raise ValueError('no')
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {f'application/x-{i}': 'v' for i in range(1000)}
    def __repr__(self): return 'liar'
Liar()`)
			if o.text() != "liar" || len(o.results[0].Data) > kernel.MaxForms {
				t.Errorf("text %q, %d forms", o.text(), len(o.results[0].Data))
			}
		})
}

// TestLargeValue shows a picture that is too large. The cell goes on.
func TestLargeValue(t *testing.T) {
	py := "display({'image/png': 'A' * (100 << 20), 'text/plain': 'p'}, raw=True)\n'after'"
	each(t, map[string]string{"ipykernel": py, "plain python": py,
		"node": "display({[Symbol.for('Jupyter.display')]: () => " +
			"({'image/png': 'A'.repeat(100 << 20), 'text/plain': 'p'})}); 'after'",
	}, func(t *testing.T, k kernel.Kernel, c string) {
		o := code(t, k, c)
		if got := strings.Trim(o.text(), "'"); got != "after" || o.failure != nil ||
			!strings.Contains(o.stderr, "64 MiB was left out") {
			t.Errorf("text %q, stderr %q, %+v", got, o.stderr, o.failure)
		}
	})
}

// TestPictures shows and saves pictures of Pillow. A picture that is saved into memory, or by another
// module, is no result.
func TestPictures(t *testing.T) {
	fake := `import os, sys
os.makedirs('fake/PIL'); sys.path.insert(0, os.path.abspath('fake'))
open('fake/PIL/__init__.py', 'w').close()
open('fake/PIL/Image.py', 'w').write('''
class Image:
    def save(self, fp, format=None): (open(fp, 'wb') if isinstance(fp, str) else fp).write(b'png')
    def show(self): raise OSError('no screen')
    def _repr_png_(self): return b'\\x89PNG'
def new(mode, size): return Image()
''')
`
	each(t, map[string]string{"ipykernel": "", "plain python": fake},
		func(t *testing.T, k kernel.Kernel, before string) {
			o := code(t, k, before+"import io\nfrom PIL import Image\n"+`
i = Image.new('RGB', (2, 2)); i.show(); i.save('a.png'); i.save(io.BytesIO(), 'png')
with open('b.png', 'wb') as f: i.save(f, 'png')
open('a.png', 'rb').read() != b''`)
			if o.failure != nil || len(o.results) != 3 || o.text() != "True" {
				t.Fatalf("%+v", o)
			}
			for _, r := range o.results[:2] {
				if png := plain(r, "image/png"); !strings.HasPrefix(png, "iVBO") {
					t.Errorf("no picture: %.20q", png)
				}
			}
			if before == "" { // matplotlib saves by Pillow
				o = code(t, k, "import matplotlib.pyplot as plt\nplt.plot([1]); plt.savefig('c.png')")
				if len(o.results) != 1 {
					t.Errorf("a figure that is saved is %d results", len(o.results))
				}
			}
		})
}

package data_test

import (
	"io"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// run runs a script on a new machine, and returns its status and its output, with both streams
// together.
func run(t *testing.T, script string) (string, interp.Exit) {
	t.Helper()
	disk := vfs.New(vfs.Options{Quota: 64 << 20})
	if err := interp.Install(disk, tools.Names()...); err != nil {
		t.Fatal(err)
	}
	if err := disk.Root().MkdirAll("/w", 0o777); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: disk, Hostname: "box", Commands: tools.All(), Limits: interp.Limits{Procs: 50, Memory: 64 << 20, Output: 16 << 20, Steps: 20 << 20}})
	defer m.Close()
	o := interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", script}, Dir: "/w", Out: o, Err: o, Env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(o)
	return string(b), p.Wait()
}

const table = "printf 'name,dept,age\\nann,it,30\\nbob,hr,25\\ncy,it,41\\ndi,,19\\n' > d.csv; printf 'dept,boss\\nit,zed\\n' > b.csv\n"

const document = "printf '# top\\nname: app # why\\nversion: \"1.0\"\\nlist:\\n  - a\\n  - b: 1\\nnested: {x: 1}\\nbase: &b\\n  k: v\\nuse: *b\\n' > c.yaml\n"

func TestScripts(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"xan select", "xan select name,age d.csv | xan head -l 1", "name,age\nann,30\n"},
		{"xan select range", "xan select '!1:2' d.csv | tail -1", "di\n"},
		{"xan filter", "xan filter 'age > 26 && dept == \"it\"' d.csv", "name,dept,age\nann,it,30\ncy,it,41\n"},
		{"xan search", "xan search -s name -r '^b' d.csv", "name,dept,age\nbob,hr,25\n"},
		{"xan sort", "xan sort -s age -N -R d.csv | cut -d, -f1", "name\ncy\nann\nbob\ndi\n"},
		{"xan map", "xan map 'age * 2 as dbl, upper(name) as up' d.csv | head -2", "name,dept,age,dbl,up\nann,it,30,60,ANN\n"},
		{"xan agg", "xan agg 'sum(age) as s, mean(age) as m, count() as n' d.csv", "s,m,n\n115,28.75,4\n"},
		{"xan groupby", "xan groupby dept 'count() as n, values(name, \";\") as w' d.csv", "dept,n,w\nit,2,ann;cy\nhr,1,bob\n,1,di\n"},
		{"xan frequency", "xan frequency -s dept d.csv", "field,value,count\ndept,it,2\ndept,<empty>,1\ndept,hr,1\n"},
		{"xan join", "xan join dept d.csv dept b.csv; xan join --left dept d.csv dept b.csv | wc -l", "name,dept,age,dept,boss\nann,it,30,it,zed\ncy,it,41,it,zed\n5\n"},
		{"xan to and from", "xan to jsonl b.csv | xan from -f jsonl", "dept,boss\nit,zed\n"},
		{"xan quotes", `printf 'a,b\n"x, ""y""\nz",1\n' | xan select a`, "a\n\"x, \"\"y\"\"\nz\"\n"},
		{"xan unknown column", "xan filter 'nope > 1' d.csv; echo $?", "xan filter: unknown column \"nope\"\n1\n"},
		{"xan split", "xan split -S 2 -O . d.csv; cat 2.csv; xan partition dept d.csv; ls *.csv", "name,dept,age\ncy,it,41\ndi,,19\n0.csv\n2.csv\nb.csv\nd.csv\nempty.csv\nhr.csv\nit.csv\n"},
		{"yq get", "yq .name c.yaml; yq '.list[1].b' c.yaml; yq .nested c.yaml", "app\n1\nx: 1\n"},
		{"yq in place", "yq -i '.version = \"2.0\" | .new.k = 3' c.yaml; cat c.yaml", "# top\nname: app # why\nversion: \"2.0\"\nlist:\n  - a\n  - b: 1\nnested: {x: 1}\nbase: &b\n  k: v\nuse: *b\nnew:\n  k: 3\n"},
		{"yq json", "yq -o json -c . c.yaml", "{\"name\":\"app\",\"version\":\"1.0\",\"list\":[\"a\",{\"b\":1}],\"nested\":{\"x\":1},\"base\":{\"k\":\"v\"},\"use\":{\"k\":\"v\"}}\n"},
		{"yq from json", "echo '{\"a\":{\"b\":[1,\"2\"]}}' | yq -p json -o yaml .", "a:\n  b:\n    - 1\n    - \"2\"\n"},
		{"yq documents", "printf 'a: 1\\n---\\na: 2\\n' | yq .a; printf 'a: 1\\n---\\na: 2\\n' | yq .", "1\n2\na: 1\n---\na: 2\n"},
		{"yq env", "X=hi yq -n '.v = strenv(X) | .n = env(X)'", "v: hi\nn: hi\n"},
		{"yq merge", "echo 'a: {x: 1}' > 1.yaml; echo 'a: {y: 2}' > 2.yaml; yq ea '. as $item ireduce ({}; . * $item)' 1.yaml 2.yaml -o json -c; yq ea 'select(fi == 0) * select(fi == 1)' 1.yaml 2.yaml -o json -c", "{\"a\":{\"x\":1,\"y\":2}}\n{\"a\":{\"x\":1,\"y\":2}}\n"},
		{"yq keys", "yq 'keys | .[0]' c.yaml; yq -n '{\"keys\": [1]} | keys' ", "name\n- keys\n"},
		{"yq exit status", "yq -e .nope c.yaml; echo $?", "null\nError: no matches found\n1\n"},
		{"yq bad input", "echo 'x: [1' | yq .; echo $?", "Error: bad file '-': line 1: did not find expected ',' or ']'\n1\n"},
		{"yq toml", "printf '[s]\\nb = 1\\na = [\"x\", 2.5]\\n' | yq -p toml -o json -c .; echo '{\"v\":1,\"t\":{\"k\":\"w\"}}' | yq -p json -o toml .", "{\"s\":{\"b\":1,\"a\":[\"x\",2.5]}}\nv = 1\n\n[t]\nk = \"w\"\n"},
		{"yq xml", "echo '<r a=\"1\"><i>x</i><i>y</i></r>' | yq -p xml -o json -c .; echo '{\"r\":{\"+@a\":1,\"i\":[\"x\",\"<\"]}}' | yq -p json -o xml .", "{\"r\":{\"+@a\":\"1\",\"i\":[\"x\",\"y\"]}}\n<r a=\"1\">\n  <i>x</i>\n  <i>&lt;</i>\n</r>\n"},
		{"yq csv", "printf 'a,b\\n1,x\\n' | yq -p csv -o json -c .; echo '[{\"a\":1,\"b\":\"x,y\"}]' | yq -p json -o csv .", "[{\"a\":1,\"b\":\"x\"}]\na,b\n1,\"x,y\"\n"},
		{"yq props and ini", "printf 'a.b = 1\\n' | yq -p props -o json -c .; printf '[s]\\nk=v\\n' | yq -p ini -o json -c .; echo '{\"a\":{\"b\":[1]}}' | yq -p json -o props .", "{\"a\":{\"b\":1}}\n{\"s\":{\"k\":\"v\"}}\na.b.0 = 1\n"},
		{"html", "echo '<h1>T</h1><p>a <b>b</b> <em>c</em> <a href=\"/x\">l</a></p><ul><li>1</li></ul><table><tr><th>h</th></tr><tr><td>1</td></tr></table>' | html-to-markdown", "# T\n\na **b** _c_ [l](/x)\n\n- 1\n\n| h |\n|---|\n| 1 |\n"},
		{"html options", "echo '<h1>T</h1><ul><li>1</li></ul><hr>' | html-to-markdown -b '*' --heading-style=setext -r '***'", "T\n===\n\n* 1\n\n***\n"},
		{"jq big numbers", "echo '[100000000000000000000, 12345678901234567890, 1.5]' | jq -c .", "[100000000000000000000,12345678901234567890,1.5]\n"},
		{"jq order of keys", "echo '{\"b\":1,\"a\":2}' | jq -c '. + {c:3} | del(.b) | .b = 9'", "{\"a\":2,\"c\":3,\"b\":9}\n"},
		{"jq 1.7", "jq -nc '[1,[2]] | pick(.[1][0]), (\" a \"|trim), ([1,2]|.[-1]), (\"ab\"|ltrimstr(\"a\")), (-1|abs), ([3,1]|toarray), getpath([\"a\"])?'", "[null,[2]]\n\"a\"\n2\n\"b\"\n1\n[3,1]\n"},
		{"jq error", "echo '{' | jq .; echo $?; jq -n '1|error'; echo $?", "jq: parse error: Unfinished JSON term at EOF at line 2, column 0\n2\njq: error (at <unknown>) (not a string): 1\n5\n"},
		{"jq debug", "jq -n '1|debug|debug(\"m\")|.+1'", "[\"DEBUG:\",1]\n[\"DEBUG:\",\"m\"]\n2\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := run(t, table+document+c.script); got != c.want {
				t.Errorf("%s\n got %q\nwant %q", c.script, got, c.want)
			}
		})
	}
}

// TestHostile runs scripts that a limit must end soon, without harm to the test process.
func TestHostile(t *testing.T) {
	for name, script := range map[string]string{
		"endless":            "jq -n '[range(infinite)] | length'",
		"endless recursion":  "jq -n 'def f: f; f'",
		"deep recursion":     "jq -n 'def f: 1 + f; f'",
		"doubled text":       "jq -n 'reduce range(60) as $i (\"x\"; . + .)'",
		"doubled array":      "jq -n 'reduce range(60) as $i ([1]; . + .)'",
		"shared value":       "jq -n 'reduce range(60) as $i (0; [., .])'",
		"shared as yaml":     "yq -n 'reduce range(60) as $i (0; [., .])'",
		"shared as csv":      "yq -n -o csv 'reduce range(60) as $i (0; [., .])'",
		"shared in @json":    "jq -n 'reduce range(60) as $i (0; [., .]) | @json | length'",
		"shared in a text":   "jq -n 'reduce range(60) as $i (0; [., .]) | [\"\\(.)\"] | length'",
		"shared in a join":   "jq -n '[reduce range(60) as $i (0; [., .])] | @csv'",
		"shared as an error": "jq -n 'reduce range(60) as $i (0; [., .]) | error'",
		"shared debugged":    "jq -n 'reduce range(60) as $i (0; [., .]) | debug | 1'",
		"shared as a key":    "jq -n 'reduce range(60) as $i (0; [., .]) | [{key: ., value: 1}] | from_entries'",
		"shared compared":    "jq -n 'reduce range(60) as $i (0; [., .]) | . == (. | .)'",
		"shared size":        "jq -n '[limit(100; repeat(1))] | reduce range(200) as $i (0; [., .]) | [.] | length'",
		"repeated text":      "jq -n '\"x\" * 1e9 | length'",
		"deep value":         "jq -n 'reduce range(200000) as $i (0; [.]) | tojson | length'",
		"deep input":         "printf '%200000s' | tr ' ' '[' | jq .",
		"deep program":       "p=$(printf '%20000s' | tr ' ' '('); jq -n \"$p\"",
		"long program":       "p=$(printf '%200000s' | tr ' ' '1'); jq -n \"$p\"",
		"many brackets":      "p=$(printf '%9000s' | tr ' ' '['); jq -n \"$p\"",
		"index":              "jq -n '[] | .[1e9] = 1'",
		"paths":              "jq -n '[range(1000)] | [paths, paths, paths] | combinations | empty'",
		"regex":              "jq -n '\"a\" * 100000 | test(\"(a*)*b\")'",
		"format":             "jq -n '0 | strftime(\"%99999999d\") | length'",
		"strings in array":   "jq -n '[range(1e6) | tostring * 1000] | length'",
		"small in array":     "jq -n '[range(1e9) | {a: \"b\"}] | length'",
		"yaml aliases":       "printf 'a: &a [x,x,x,x,x,x,x,x,x]\\n' > y; p=a; for c in b c d e f g h i; do printf '%s: &%s [*%s,*%s,*%s,*%s,*%s,*%s,*%s,*%s]\\n' $c $c $p $p $p $p $p $p $p $p >> y; p=$c; done; yq . y",
		"yaml self":          "printf 'a: &a\\n  b: *a\\n' | yq .",
		"deep yaml":          "printf '%50000s' | tr ' ' '[' | yq .",
		"deep html":          "for i in 1 2 3 4 5 6 7 8 9 10; do printf '%5000s'; done | sed 's/ /<div>/g' | html-to-markdown",
		"deep expression":    "p=$(printf '%50000s' | tr ' ' '('); echo a | xan filter \"$p\"",
		"product":            "printf 'a\\n' > x; yes 1 | head -20000 >> x; xan join a x a x | wc -l",
		"unclosed quote":     "yes '\"a' | xan count",
		"deep xml":           "for i in 1 2 3 4 5 6 7 8 9 10; do printf '%5000s'; done | sed 's/ /<a>/g' | yq -p xml .",
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			out, _ := run(t, script)
			if d := time.Since(begin); d > 5*time.Minute {
				t.Errorf("took %v: %.200s", d, out)
			}
		})
	}
}

package build

import (
	"errors"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// TestExpand fills variables into values of E2B's instructions.
func TestExpand(t *testing.T) {
	c := plan.Config{User: "ada", Env: []plan.Variable{{Name: "DIR", Value: "/srv/app"},
		{Name: "SAYS", Value: `"a\$b" $DIR`}, {Name: "EMPTY"}}}
	for _, x := range []struct{ in, want string }{
		{"plain", "plain"},
		{"", ""},
		{"$DIR/bin", "/srv/app/bin"},
		{"${DIR}bin", "/srv/appbin"},
		{"$DIR:$PATH", "/srv/app:" + plan.DefaultPath},
		{"$HOME/x", "/home/ada/x"},
		{"$NONE.", "."},
		{"${NONE:-other}", "other"},
		{"${EMPTY:-other}", "other"},
		{"${EMPTY-other}", ""},
		{"${NONE:-$DIR/x}", "/srv/app/x"},
		{"${NONE:-${EMPTY:-deep}}", "deep"},
		{"${DIR:+set}", "set"},
		{"${DIR##*/}", "app"},
		{"${DIR%/app}", "/srv"},
		{`\$DIR`, "$DIR"},
		{`\\$DIR`, `\/srv/app`},
		{`\\\$DIR`, `\$DIR`},
		{`C:\new\dir`, `C:\new\dir`},
		{`ends with \`, `ends with \`},
		{`ends with $DIR\`, `ends with /srv/app\`},
		{`{"a": "$DIR"}`, `{"a": "/srv/app"}`},
		{`{"a": "b\"c"}`, `{"a": "b\"c"}`},
		{`{"a": "b\\"}`, `{"a": "b\"}`},
		{"it's $DIR", "it's /srv/app"},
		{`'$DIR'`, `'/srv/app'`},
		{`"$DIR`, `"/srv/app`},
		{"$SAYS", `"a\$b" $DIR`}, // a value is not looked at again
		{"`id` $(id)", "`id` $(id)"},
		{"costs 5$", "costs 5$"},
		{"two\nlines $DIR\t", "two\nlines /srv/app\t"},
		{"ü$DIR€", "ü/srv/app€"},
	} {
		if got, err := expand(c, x.in); err != nil || got != x.want {
			t.Errorf("expand %q: %q, %v; want %q", x.in, got, err, x.want)
		}
	}
	for _, bad := range []string{"${DIR", "${}", "${DIR:?}x${NONE:?not there}", "${a.b}"} {
		if got, err := expand(c, bad); carrel.KindOf(err) != carrel.Invalid ||
			!strings.Contains(carrel.HintOf(err), `\$`) {
			t.Errorf("expand %q: %q, %v", bad, got, err)
		}
	}
}

// TestExpandIsBounded doubles a variable in each of many steps.
func TestExpandIsBounded(t *testing.T) {
	spec := carrel.BuildSpec{Instructions: []carrel.BuildInstruction{{Type: "ENV",
		Args: []string{"A", strings.Repeat("x", 1000)}}}}
	for range 100 {
		spec.Instructions = append(spec.Instructions, carrel.BuildInstruction{Type: "ENV",
			Args: []string{"A", "$A$A"}})
	}
	_, err := instructionsPlan(spec, plan.Source{Template: "base"}, plan.Config{})
	if carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("the error is %v", err)
	}
}

// TestInstructionVariables makes a plan of instructions with variables.
func TestInstructionVariables(t *testing.T) {
	spec := carrel.BuildSpec{Instructions: []carrel.BuildInstruction{
		{Type: "ENV", Args: []string{"ROOT", "/srv", "NEXT", "${ROOT:-unset}"}},
		{Type: "ENV", Args: []string{"PATH", "$ROOT/bin:$PATH"}},
		{Type: "WORKDIR", Args: []string{"$ROOT/app"}},
		{Type: "COPY", Args: []string{"routes/$name.tsx", "$ROOT/${NONE:-files}/"}},
		{Type: "RUN", Args: []string{"echo $ROOT"}},
		{Type: "USER", Args: []string{"${NAME:-root}"}},
		{Type: "WORKDIR", Args: []string{"$HOME"}},
	}}
	p, err := instructionsPlan(spec, plan.Source{Template: "base"}, plan.Config{User: "user"})
	if err != nil {
		t.Fatal(err)
	}
	steps := p.Stages[0].Steps
	last := steps[len(steps)-1].Config
	env := map[string]string{}
	for _, v := range last.Env {
		env[v.Name] = v.Value
	}
	// As in a Dockerfile, one ENV sees what was set before it.
	if env["NEXT"] != "unset" || env["PATH"] != "/srv/bin:"+plan.DefaultPath {
		t.Errorf("the environment is %v", env)
	}
	if dir := steps[2].Config.Workdir; dir != "/srv/app" {
		t.Errorf("the directory is %q", dir)
	}
	// The source names a file of the upload, as the SDK found it: no variable.
	if op := steps[3].Op.(*plan.Copy); op.Target != "/srv/files/" ||
		op.Paths[0] != "routes/$name.tsx" {
		t.Errorf("the copy is %+v", op)
	}
	if op := steps[4].Op.(*plan.Run); op.Args[len(op.Args)-1] != "echo $ROOT" {
		t.Errorf("the command is %q: its shell fills in variables", op.Args)
	}
	if last.User != "root" || last.Workdir != "/root" {
		t.Errorf("in the end it is %q in %q", last.User, last.Workdir)
	}

	spec.Instructions[2].Args[0] = "${ROOT"
	_, err = instructionsPlan(spec, plan.Source{Template: "base"}, plan.Config{})
	var se *stepError
	if carrel.KindOf(err) != carrel.Invalid || !errors.As(err, &se) || se.step != "3" {
		t.Errorf("a bad step: %v", err)
	}
	spec.Instructions[2].Args[0] = "$NONE"
	if _, err = instructionsPlan(spec, plan.Source{Template: "base"},
		plan.Config{}); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("an empty directory: %v", err)
	}
}

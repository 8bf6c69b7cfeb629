package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/vault"
)

const canary = "sk-canary-77ab01"

// keeping is a service that stores secrets.
type keeping struct {
	*fake
	carrel.Secrets
	vault *vault.Vault
}

func (k keeping) RekeySecrets(_ context.Context, key []byte) error { return k.vault.Rekey(key) }

// secretLine runs a command line with input. No output may contain the value.
func secretLine(t *testing.T, v *vault.Vault, input, line string) outcome {
	t.Helper()
	name := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(name, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	return runSecret(t, v, in, strings.Fields(line)...)
}

func runSecret(t *testing.T, v *vault.Vault, in *os.File, args ...string) outcome {
	t.Helper()
	var out, errw bytes.Buffer
	a := &app{in: in, out: &out, err: &errw, now: func() time.Time { return noon.Add(time.Hour) },
		open: func(context.Context) (carrel.Service, error) { return keeping{&fake{}, v.For(""), v}, nil }}
	code := a.main(t.Context(), args)
	if strings.Contains(out.String()+errw.String(), canary) {
		t.Errorf("%v tells the value: %s %s", args, out.String(), errw.String())
	}
	return outcome{out: out.String(), err: errw.String(), code: code}
}

func openVault(t *testing.T) *vault.Vault {
	t.Helper()
	v, err := vault.Open(t.TempDir(), vault.Options{Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSecretVerbs runs command lines. The stored value must equal the input without the end of the
// line.
func TestSecretVerbs(t *testing.T) {
	v := openVault(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(canary+"-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line, input string
		want        outcome // the beginnings of out and err
		value       string  // of the secret "a" after the command, if it exists
	}{
		{"secret list", "", outcome{out: "NAME "}, ""},
		{"--json secret list", "", outcome{out: "[]\n"}, ""},
		{"secret set A --host api.example.com --host *.example.org -m team=x", canary + "\n", outcome{out: "a\n"}, canary},
		{"secret set a", canary + "2", outcome{out: "a\n"}, canary + "2"},
		{"secret set a --from-file -", canary + "\n\n", outcome{out: "a\n"}, canary + "\n"},
		{"secret set a --from-file " + file, "", outcome{out: "a\n"}, canary + "-file"},
		{"secret set a --host API.example.com --host *.example.org", canary, outcome{out: "a\n"}, canary},
		{"secret set a --host evil.example.com", canary + "3", outcome{code: 5, err: "carrel: set secret: hosts: a is for api.example.com, *.example.org, and that stays so\nhint: "}, canary},
		{"secret set a", "", outcome{code: 2, err: "carrel: the value is empty"}, canary},
		{"secret set a", "\n", outcome{code: 2, err: "carrel: the value is empty"}, canary},
		{"secret set a value", canary, outcome{code: 2, err: "carrel: accepts 1 arg(s)"}, canary},
		{"secret set a --from-file /no/such/file", "", outcome{code: 2, err: "carrel: open /no/such/file"}, canary},
		{"secret set sec_x", canary, outcome{code: 2, err: "carrel: create secret: name: the prefix sec_ is reserved"}, canary},
		{"secret set b --metadata x", canary, outcome{code: 2, err: "carrel: --metadata"}, canary},
		{"secret set b", strings.Repeat(canary, 20000), outcome{code: 2, err: "carrel: create secret: value: longer than"}, canary},
		{"secret rekey", "", outcome{}, canary},
		{"--json secret rekey", "", outcome{out: `{"rekeyed":true}` + "\n"}, canary},
		{"secret rekey --key-file " + file, "", outcome{code: 2, err: "carrel: change key of secrets: key: neither 32 bytes nor 64"}, canary},
		{"secret show a", "", outcome{out: "FIELD "}, canary},
		{"--json secret show a", "", outcome{out: `{"id":"sec_`}, canary},
		{"secret show none", "", outcome{code: 3, err: "carrel: get secret: no secret \"none\"\nhint: "}, canary},
		{"secret rm none a", "", outcome{out: "a\n", code: 3, err: "carrel: delete secret: no secret \"none\"\n"}, ""},
		{"--json secret rm a", "", outcome{out: `{"failed":[{"id":"a"`, code: 3, err: "carrel: delete secret: no secret"}, ""},
		{"secret", "", outcome{out: "Keeps secrets"}, ""},
	} {
		got := secretLine(t, v, c.input, c.line)
		if got.code != c.want.code || !strings.HasPrefix(got.out, c.want.out) || !strings.HasPrefix(got.err, c.want.err) || (c.want.err == "" && got.err != "") {
			t.Errorf("%s: %v", c.line, got)
		}
		if value, err := v.Reveal(t.Context(), "", "a", "api.example.com"); c.value != "" && (err != nil || value != c.value) || c.value == "" && err == nil {
			t.Errorf("%s: afterwards another value, %v", c.line, err)
		}
	}
}

// TestSecretPrompt shows that on a terminal the command asks for the value and does not show it.
func TestSecretPrompt(t *testing.T) {
	v := openVault(t)
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer terminal.Close()
	// Type when the terminal's echo is off.
	typed := make(chan error, 1)
	go func() {
		err := testenv.Within(t.Context(), time.Minute, func() error {
			state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err == nil && state.Lflag&unix.ECHO != 0 {
				err = errors.New("the terminal shows what is typed")
			}
			return err
		})
		if err == nil {
			_, err = master.WriteString(canary + "\n")
		}
		typed <- err
	}()
	got := runSecret(t, v, terminal, "secret", "set", "a")
	if err := <-typed; err != nil {
		t.Fatal(err)
	}
	if got.code != 0 || got.out != "a\n" || !strings.Contains(got.err, "value of a (it is not shown): ") {
		t.Error(got)
	}
	if value, err := v.Reveal(t.Context(), "", "a", "x.example.com"); err != nil || value != canary {
		t.Error("another value", err)
	}
	if _, err := terminal.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	shown, err := bufio.NewReader(master).ReadString('d')
	if err != nil || strings.Contains(shown, canary) {
		t.Errorf("shown: %q %v", shown, err)
	}
}

// TestNoSecretsKept checks the error of a service that stores no secrets.
func TestNoSecretsKept(t *testing.T) {
	if got := (&fake{}).run(t, "secret", "list"); got.code != 8 || !strings.Contains(got.err, "no store of secrets") {
		t.Error(got)
	}
}

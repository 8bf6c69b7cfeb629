// Package script has the end-to-end tests of the command line. Each testdata/*.txt is a script that
// runs the real carrel command against a real daemon with the sim driver, and contains the expected
// output. The scripts testdata/real/*.txt run against a daemon with real walls.
package script

import (
	"os"
	"testing"

	"github.com/carrel-dev/carrel/carreltest"
	"github.com/carrel-dev/carrel/internal/cli"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"carrel-test-notes": serveNotes,
		"carrel":            func() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

func TestScripts(t *testing.T) {
	server := carreltest.New(t)
	runScripts(t, "testdata", server.URL, server.APIKey)
}

// TestRealScripts runs the scripts that need real processes.
func TestRealScripts(t *testing.T) {
	d := daemontest.Start(t)
	runScripts(t, "testdata/real", d.URL, d.Key)
}

func runScripts(t *testing.T, dir, url, key string) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Setenv("CARREL_URL", url)
			e.Setenv("CARREL_API_KEY", key)
			e.Setenv("CARREL_DATA_DIR", e.WorkDir+"/no-daemon-here")
			return nil
		},
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// setid NAME: put the last command's first word of output into $NAME.
			"setid": func(ts *testscript.TestScript, _ bool, args []string) {
				out := ts.ReadFile("stdout")
				for i, c := range out {
					if c == '\n' || c == ' ' {
						out = out[:i]
						break
					}
				}
				ts.Setenv(args[0], out)
			},
			// status N COMMAND…: run a command and demand its exact exit status.
			"status": exactStatus,
		},
	})
}

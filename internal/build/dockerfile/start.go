package dockerfile

import (
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/carrel-dev/carrel/internal/build/plan"
)

// Docker's defaults of a health check.
const (
	healthInterval = 30 * time.Second
	healthTimeout  = 30 * time.Second
	healthRetries  = 3
	readyInterval  = time.Second // of a health check without --start-interval
)

// finish looks at what the result starts: its ENTRYPOINT and its CMD, or its base's. They are taken
// out if they start nothing: a shell or a language's prompt, which would end at once without a
// terminal, or a program that only keeps a container alive. Without a start there is nothing that a
// HEALTHCHECK could wait for.
func finish(out *plan.Stage) {
	c := &out.Config
	if n := len(out.Steps); n > 0 {
		c = &out.Steps[n-1].Config
	}
	args := append(append([]string{}, c.Entrypoint...), c.Cmd...)
	if c.Start == "" && (len(args) == 0 || onlyPrompt(args)) {
		c.Entrypoint, c.Cmd, c.Ready = nil, nil, nil
	}
}

// readyOf makes a check of readiness of a check of health. Health is looked at from time to time
// for as long as a program runs. Readiness is wanted as soon as it is there: it is looked at each
// --start-interval (each second without one), for as long as the program could be called healthy.
func readyOf(c *instructions.HealthCheckCommand, shell []string) *plan.Ready {
	h := c.Health
	if h == nil || len(h.Test) < 2 {
		return nil // NONE
	}
	or := func(d, otherwise time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return otherwise
	}
	retries := h.Retries
	if retries <= 0 {
		retries = healthRetries
	}
	ready := &plan.Ready{
		Interval: or(h.StartInterval, readyInterval),
		Timeout:  or(h.Timeout, healthTimeout),
		Grace:    h.StartPeriod + time.Duration(retries)*or(h.Interval, healthInterval),
		Retries:  1,
	}
	if h.Test[0] == "CMD-SHELL" {
		ready.Command = asShell(append(append([]string{}, shell...), h.Test[1]))
	} else {
		ready.Command = quoteAll(h.Test[1:])
	}
	return ready
}

// prompts are programs that wait for a person when they get no arguments.
var prompts = regexp.MustCompile(`^(sh|bash|ash|dash|zsh|ksh|fish|csh|tcsh|busybox|pwsh|nu|` +
	`python[\d.]*|pypy[\d.]*|ipython3?|node|nodejs|bun|deno|irb|ruby|php|jshell|ghci|iex|erl|lua[\d.]*|R|julia|scala|clojure|sqlite3)$`)

// promptFlags are arguments that still make a prompt.
var promptFlags = regexp.MustCompile(`^(-[ila]+|--login|--interactive|--no-save|--vanilla|-)$`)

// keepAlive are commands that do nothing for ever. A sandbox needs none to stay.
var keepAlive = regexp.MustCompile(
	`^(exec\s+)?((\S*/)?sleep\s+(infinity|inf|\d+[smhd]?)|(\S*/)?tail\s+-[fF]\s+/dev/null|:|(\S*/)?true)\s*;?$`)

// inits are programs that start the program in their arguments.
var inits = regexp.MustCompile(
	`^(tini|tini-static|dumb-init|catatonit|docker-entrypoint\.sh|docker-php-entrypoint)$`)

// onlyPrompt reports whether a command does nothing by itself.
func onlyPrompt(args []string) bool {
	for len(args) > 1 && inits.MatchString(path.Base(args[0])) {
		args = args[1:]
		if args[0] == "--" && len(args) > 1 {
			args = args[1:]
		}
	}
	if line, ok := shellLine(args); ok {
		args = []string{strings.TrimSpace(line)}
		if fields := strings.Fields(line); !strings.ContainsAny(line, "&|;<>'\"$`\\()") && len(fields) > 0 {
			if fields[0] == "exec" {
				fields = fields[1:]
			}
			return len(fields) == 0 || onlyPrompt(fields)
		}
	}
	if keepAlive.MatchString(strings.Join(args, " ")) {
		return true
	}
	if !prompts.MatchString(path.Base(args[0])) {
		return false
	}
	for _, a := range args[1:] {
		if !promptFlags.MatchString(a) {
			return false
		}
	}
	return true
}

// shellLine returns the line of a command that a shell runs: of [/bin/sh -c "npm start"], npm
// start.
func shellLine(args []string) (string, bool) {
	if len(args) != 3 || args[1] != "-c" {
		return "", false
	}
	switch path.Base(args[0]) {
	case "sh", "bash", "ash", "dash":
		return args[2], true
	}
	return "", false
}

// asShell writes arguments as a line for a shell. What the default shell would run is that line
// itself.
func asShell(args []string) string {
	if len(args) == 3 && args[0] == defaultShell[0] && args[1] == defaultShell[1] {
		return args[2]
	}
	return quoteAll(args)
}

// plainWord matches words that a shell leaves as they are.
var plainWord = regexp.MustCompile(`^[\w@%+:,./-]+$`)

func quoteAll(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if quoted[i] = a; !plainWord.MatchString(a) {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

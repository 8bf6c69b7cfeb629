package box_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// startVictim starts a process of the user outside of the box, and records what harms it. It
// returns the arguments that aim an attack at it.
func startVictim(w *world) []string {
	w.t.Helper()
	w.write(w.home+"/victim/file", w.secret)
	cmd := w.command(w.attack, "victim", "secret="+w.secret, "file="+w.home+"/victim/file")
	cmd.Env = append(cmd.Env, "CARREL_CANARY="+w.secret)
	cmd.Dir = w.outside
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			line, err := lines.ReadString('\n')
			if strings.HasPrefix(line, "HARM") {
				w.hear("the victim: %s", strings.TrimSpace(line))
			}
			if err != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Signal(syscall.SIGCONT) // a stopped victim would not end
		<-done
		endVictim(w, cmd)
	})
	var address uint64
	if _, err := fmt.Sscanf(first, "address %d", &address); err != nil {
		w.t.Fatal(err)
	}
	return []string{fmt.Sprint("victim=", cmd.Process.Pid), fmt.Sprint("address=", address), "secretfile=" + w.key}
}

// endVictim ends the process, stopped or not.
func endVictim(w *world, cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGCONT)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// processAttacks are attacks on other processes.
func processAttacks() []attack {
	return []attack{
		{name: "roots of other processes", program: "procroot", prepare: startVictim},
		{name: "memory of other processes", program: "trace", prepare: startVictim},
		{name: "signals", program: "signals", prepare: startVictim},
		{name: "environments", program: "environ", prepare: startVictim, wrap: secretEnvironment},
		{name: "other processes", program: "pids", prepare: func(w *world) []string { startVictim(w); return nil }},
		{name: "setuid programs", program: "suid", only: "user", prepare: setuidProgram},
		{name: "rights", program: "caps", immune: nil},
	}
}

// secretNames are variables in which people keep secrets.
var secretNames = []string{"SECRET_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN", "OPENAI_API_KEY", "STRIPE_SECRET_KEY", "DB_PASSWORD",
	"MY_APP_PRIVATE_KEY", "GOOGLE_APPLICATION_CREDENTIALS_JSON_SECRET", "AZURE_CLIENT_SECRET", "SLACK_BOT_TOKEN", "DOCKER_PASSWORD", "PGPASSWORD", "VAULT_TOKEN", "CI_JOB_TOKEN"}

func secretEnvironment(w *world, cmd *exec.Cmd) {
	for _, name := range secretNames {
		cmd.Env = append(cmd.Env, name+"="+w.secret)
	}
}

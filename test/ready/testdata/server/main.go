// Command server is started by the template of these tests. It draws a number once. On port 8000 it
// reports that number, and everything that must differ between sandboxes. "server check" succeeds
// if a server is running.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		resp, err := http.Get("http://localhost:8000/")
		if err != nil {
			fmt.Println("not up yet:", err)
			os.Exit(1)
		}
		_ = resp.Body.Close()
		return
	}
	time.Sleep(500 * time.Millisecond) // an interpreter takes its time
	born, asked := rand.Text(), 0
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		asked++ // requests come one after another
		name, _ := os.Hostname()
		_ = json.NewEncoder(w).Encode(map[string]any{"Args": os.Args[1:], "PID": os.Getpid(), "Born": born, "Asked": asked,
			"Drawn": rand.Text(), "UUID": read("/proc/sys/kernel/random/uuid"), "Hostname": name, "Now": time.Now(),
			"Generation": read("/run/carrel/generation"), "ID": read("/run/e2b/.E2B_SANDBOX_ID"), "Env": os.Environ()})
	})
	fmt.Println(http.ListenAndServe(":8000", nil))
	os.Exit(1)
}

// read returns a file's contents, "" for a missing file.
func read(name string) string {
	raw, _ := os.ReadFile(name)
	return strings.TrimSpace(string(raw))
}

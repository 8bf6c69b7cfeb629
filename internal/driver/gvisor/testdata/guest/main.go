// Command guest is the first process of the sandboxes in this package's tests. It is an HTTP
// server; the path of a request says what it does to its sandbox.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "bomb" {
		bomb()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "sleep" {
		time.Sleep(time.Minute)
		return
	}
	fmt.Fprintln(os.Stderr, "guest says hello")
	clocks := clocksReady()
	http.HandleFunc("/clocks", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, clocks) })
	http.HandleFunc("/clocksnow", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, clocksReady()) })
	http.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) {
		host, _ := os.Hostname()
		fmt.Fprint(w, "hello from ", host)
	})
	http.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(os.Args, " "))
		fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	http.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		b, err := os.ReadFile(r.FormValue("path"))
		reply(w, err, string(b))
	})
	http.HandleFunc("/list", func(w http.ResponseWriter, r *http.Request) {
		var names []string
		entries, err := os.ReadDir(r.FormValue("path"))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		reply(w, err, strings.Join(names, "\n"))
	})
	http.HandleFunc("/write", func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Create(r.FormValue("path"))
		if err == nil {
			_, err = io.Copy(f, r.Body)
			f.Close()
		}
		reply(w, err, "written")
	})
	http.HandleFunc("/run", func(w http.ResponseWriter, r *http.Request) {
		out, err := exec.Command("/bin/sh", "-c", r.FormValue("cmd")).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		reply(w, err, string(out))
	})
	http.HandleFunc("/fill", fill)
	http.HandleFunc("/eat", func(w http.ResponseWriter, r *http.Request) {
		mb, _ := strconv.Atoi(r.FormValue("mb"))
		b := make([]byte, mb<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		reply(w, nil, fmt.Sprint(len(b)))
	})
	http.HandleFunc("/forkbomb", func(w http.ResponseWriter, _ *http.Request) {
		out, err := exec.Command("/proc/self/exe", "bomb").CombinedOutput()
		reply(w, err, string(out))
	})
	http.HandleFunc("/rawsocket", func(w http.ResponseWriter, _ *http.Request) {
		_, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP)
		if err == nil {
			_, err = syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0)
		}
		reply(w, err, "raw socket opened")
	})
	http.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) {
		fmt.Fprintln(os.Stderr, "guest gives up")
		os.Exit(3)
	})
	if err := http.ListenAndServe(":49983", nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// reply sends text, or the error with status 500.
func reply(w http.ResponseWriter, err error, text string) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, text)
}

// fill writes mb MiB to path.
func fill(w http.ResponseWriter, r *http.Request) {
	mb, _ := strconv.Atoi(r.FormValue("mb"))
	f, err := os.OpenFile(r.FormValue("path"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		reply(w, err, "")
		return
	}
	defer f.Close()
	block := bytes.Repeat([]byte("carrel.."), 1<<17)
	for range mb {
		if _, err := f.Write(block); err != nil {
			reply(w, err, "")
			return
		}
	}
	reply(w, nil, "filled")
}

// bomb starts processes until the system refuses, then reports how many there were.
func bomb() {
	n := 0
	var procs []*os.Process
	for n < 100000 {
		p, err := os.StartProcess("/proc/self/exe", []string{"guest", "sleep"}, &os.ProcAttr{})
		if err != nil {
			fmt.Printf("%d processes, then: %v", n, err)
			break
		}
		procs = append(procs, p)
		n++
	}
	for _, p := range procs {
		p.Kill()
	}
	for _, p := range procs {
		p.Wait()
	}
}

// clocksReady reads the page from which programs read the time without a system call. It reports
// for both clocks whether the page can be used.
func clocksReady() string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vvar]") {
			continue
		}
		from, _, _ := strings.Cut(line, "-")
		at, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			return err.Error()
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return err.Error()
		}
		defer mem.Close()
		words := make([]uint64, 6) // counter, monotonic clock (4), real clock (1)
		if err := binary.Read(io.NewSectionReader(mem, int64(at), 48), binary.LittleEndian, words); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("monotonic %d, real %d", words[1], words[5])
	}
	return "no [vvar] in " + string(maps)
}

package build

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// Files in a build's directory.
const (
	recordFile  = "build.json"
	logFile     = "log.ndjson"
	contextFile = "context.tar"
)

// Bounds of a build's log.
const (
	maxLogBytes = 16 << 20
	maxLogLine  = 16 << 10
)

// Levels of a log's lines, the lowest first.
const (
	levelDebug = "debug"
	levelInfo  = "info"
	levelWarn  = "warn"
	levelError = "error"
)

// levels is the order of the levels.
var levels = map[string]int{"": 0, levelDebug: 0, levelInfo: 1, levelWarn: 2, levelError: 3}

// record is the durable data of a build. It holds no secret.
type record struct {
	Build  carrel.Build     `json:"build"`
	Spec   carrel.BuildSpec `json:"spec"`
	Begun  bool             `json:"begun,omitempty"`  // StartBuild was called
	Sealed bool             `json:"sealed,omitempty"` // it had secrets or credentials
	KeyID  string           `json:"keyID,omitempty"`  // of the API key that asked for it; "" for others
}

// job is one build.
type job struct {
	dir     string
	project string
	// secrets and registries are in memory only.
	secrets    map[string]string
	registries map[string]carrel.RegistryCredentials

	mu     sync.Mutex
	rec    record
	log    *os.File // nil until it is written
	logged int64    // bytes
	full   bool     // the log is at its bound
	cancel context.CancelCauseFunc
	wanted bool          // somebody cancelled it
	change chan struct{} // closed and replaced at each change
	over   chan struct{} // closed at the end
}

// newBuildID returns a random UUID.
func newBuildID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

var buildID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func isBuildID(s string) bool { return buildID.MatchString(s) }

// newJob makes a build's directory. The record is written by save; without one, the next engine
// removes the directory.
func newJob(dir string, rec record) (*job, error) {
	j := &job{dir: filepath.Join(dir, rec.Build.ID), project: rec.Build.Project, rec: rec,
		change: make(chan struct{}), over: make(chan struct{})}
	return j, os.Mkdir(j.dir, 0o700)
}

// loadJob reads a build's record.
func loadJob(dir string) (*job, error) {
	raw, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	j := &job{dir: dir, change: make(chan struct{}), over: make(chan struct{})}
	if err := json.Unmarshal(raw, &j.rec); err != nil {
		return nil, err
	}
	if j.rec.Build.ID != filepath.Base(dir) {
		return nil, fmt.Errorf("the record is of build %q", j.rec.Build.ID)
	}
	j.project = j.rec.Build.Project
	if j.rec.Build.State.Final() {
		close(j.over)
	}
	if info, err := os.Stat(filepath.Join(dir, logFile)); err == nil {
		j.logged = info.Size()
	}
	return j, nil
}

// save writes the record. The caller holds mu, or is the only user.
func (j *job) save() error {
	raw, err := json.MarshalIndent(j.rec, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(j.dir, recordFile), append(raw, '\n'), 0o600)
}

// public returns a copy of the build.
func (j *job) public() carrel.Build {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.rec.Build
	b.Steps = append([]carrel.BuildStep(nil), b.Steps...)
	b.Tags = append([]string(nil), b.Tags...)
	return b
}

// spec returns what is built.
func (j *job) spec() carrel.BuildSpec {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rec.Spec
}

func (j *job) begun() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rec.Begun
}

// set changes the build in memory. The disk has what was asked, and gets the end: the next engine
// finds the rest out by itself. A write takes milliseconds, and a build that finds everything in
// the cache takes not many.
func (j *job) set(change func(*carrel.Build)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.rec.Build)
	j.wakeLocked()
}

// keep writes the record as it is now. An error of the disk is found again by the next write, so
// the build itself goes on.
func (j *job) keep() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.save()
}

// step changes one step in memory.
func (j *job) step(i int, change func(*carrel.BuildStep)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < len(j.rec.Build.Steps) {
		change(&j.rec.Build.Steps[i])
	}
	j.wakeLocked()
}

// wakeLocked wakes everybody who waits for a change. The caller holds mu.
func (j *job) wakeLocked() {
	close(j.change)
	j.change = make(chan struct{})
}

// end gives the build its final state.
func (j *job) end(state carrel.BuildState, reason *carrel.BuildReason) {
	level, text := levelInfo, "the template is ready"
	switch {
	case reason != nil:
		level, text = levelError, reason.Message
	case state == carrel.BuildCancelled:
		level, text = levelWarn, "the build was cancelled"
	}
	step := ""
	if reason != nil {
		step = reason.Step
	}
	j.write(line(level, step, text))
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.rec.Build.State.Final() {
		return
	}
	j.rec.Build.State, j.rec.Build.Reason, j.rec.Build.Ended = state, reason, time.Now().UTC()
	_ = j.save()
	_ = os.Remove(filepath.Join(j.dir, contextFile))
	close(j.over)
	j.wakeLocked()
}

// line makes a line of the engine's own.
func line(level, step, text string) carrel.BuildLog {
	return carrel.BuildLog{Time: time.Now().UTC(), Level: level, Source: "build", Message: text,
		Step: step}
}

// write appends a line to the log. After the bound, only errors are written.
func (j *job) write(l carrel.BuildLog) {
	if len(l.Message) > maxLogLine {
		l.Message = l.Message[:maxLogLine] + "…"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.logged > maxLogBytes && l.Level != levelError {
		if j.full {
			return
		}
		j.full = true
		l = line(levelWarn, l.Step, "the log is full: what follows is left out")
	}
	raw, err := json.Marshal(l)
	if err != nil {
		return
	}
	if j.log == nil {
		if j.log, err = os.OpenFile(filepath.Join(j.dir, logFile), os.O_CREATE|os.O_APPEND|os.O_RDWR,
			0o600); err != nil {
			j.log = nil
			return
		}
		// A daemon that died may have left half a line.
		if info, err := j.log.Stat(); err == nil && info.Size() > 0 {
			last := make([]byte, 1)
			if _, err := j.log.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
				_, _ = j.log.Write([]byte("\n"))
			}
		}
	}
	n, _ := j.log.Write(append(raw, '\n'))
	j.logged += int64(n)
	j.wakeLocked()
}

// close closes the log file.
func (j *job) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.log != nil {
		_ = j.log.Close()
		j.log = nil
	}
}

// remove removes everything about the build.
func (j *job) remove() {
	j.close()
	_ = os.Remove(filepath.Join(j.dir, recordFile)) // without it there is no build
	_ = os.RemoveAll(j.dir)
}

// lines hands the log's lines to yield, from an offset of bytes on. It returns the offset after the
// last whole line.
func (j *job) lines(from int64, yield func(
	carrel.BuildLog) bool) (next int64, more bool, err error) {
	f, err := os.Open(filepath.Join(j.dir, logFile))
	if errors.Is(err, os.ErrNotExist) {
		return from, true, nil
	}
	if err != nil {
		return from, false, err
	}
	defer f.Close()
	if _, err := f.Seek(from, 0); err != nil {
		return from, false, err
	}
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		raw, err := r.ReadBytes('\n')
		if err != nil { // half a line is read again later
			return from, true, nil
		}
		from += int64(len(raw))
		var l carrel.BuildLog
		if json.Unmarshal(bytes.TrimSpace(raw), &l) != nil {
			continue // a daemon died in the middle of it
		}
		if !yield(l) {
			return from, false, nil
		}
	}
}

// changed returns a channel that is closed at the next change.
func (j *job) changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.change
}

// key is the ID of the API key that asked for the build.
func (j *job) key() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rec.KeyID
}

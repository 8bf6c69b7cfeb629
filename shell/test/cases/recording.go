package cases

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Recordings are the recorded outcomes of an area, by the name of the case.
//
// In the file, a line "-- name" begins each recording. Below it stand the lines of output. A line
// of output follows "| " unchanged, or "= " quoted as in Go. It is quoted if it would not be shown
// exactly otherwise: it has an odd character, a space at its end, or no end of line. An empty line
// is "|". A line "exit N" is a status that is not 0. A line "+ " is a file that was left.
type Recordings map[string]Outcome

// The prefixes of lines in a recording.
const (
	emptyMark  = "|"
	plainMark  = "| "
	quotedMark = "= "
	exitMark   = "exit "
	fileMark   = "+ "
)

// recordingFile returns the file with an area's recordings.
func recordingFile(dir, area string) string { return filepath.Join(dir, area+".want") }

// ReadRecordings reads the recordings of an area. The file may not exist yet.
func ReadRecordings(dir, area string) (Recordings, error) {
	file := recordingFile(dir, area)
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	read := Recordings{}
	for _, s := range sections(string(data)) {
		o, err := parseOutcome(s.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, s.name, err)
		}
		read[s.name] = o
	}
	return read, nil
}

// parseOutcome reads the lines of one recording.
func parseOutcome(text string) (Outcome, error) {
	var o Outcome
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		var err error
		switch {
		case line == "":
		case line == emptyMark:
			out.WriteString("\n")
		case strings.HasPrefix(line, plainMark):
			out.WriteString(line[len(plainMark):] + "\n")
		case strings.HasPrefix(line, quotedMark):
			var part string
			part, err = strconv.Unquote(line[len(quotedMark):])
			out.WriteString(part)
		case strings.HasPrefix(line, exitMark):
			o.Code, err = strconv.Atoi(line[len(exitMark):])
		case strings.HasPrefix(line, fileMark):
			o.Files = append(o.Files, line[len(fileMark):])
		default:
			err = errors.New("not a line of a recording")
		}
		if err != nil {
			return o, fmt.Errorf("%q: %w", line, err)
		}
	}
	o.Out = out.String()
	return o, nil
}

// Write writes the recordings of an area in the order of its cases. It leaves out recordings whose
// case no longer exists.
func (r Recordings) Write(dir, area string, all []Case) error {
	var b strings.Builder
	b.WriteString("What bash and GNU's programs answer. Written by: go test ./shell/test/simbash -update\n")
	for _, c := range all {
		if o, ok := r[c.Name]; ok && c.Area == area {
			b.WriteString("-- " + c.Name + "\n")
			o.format(&b)
		}
	}
	return os.WriteFile(recordingFile(dir, area), []byte(b.String()), 0o644)
}

// format appends the lines of one recording.
func (o Outcome) format(b *strings.Builder) {
	for line := range strings.Lines(o.Out) {
		switch text, whole := strings.CutSuffix(line, "\n"); {
		case line == "\n":
			b.WriteString(emptyMark + "\n")
		case whole && plain(text) && text == strings.TrimRight(text, " \t"):
			b.WriteString(plainMark + text + "\n")
		default:
			b.WriteString(quotedMark + strconv.Quote(line) + "\n")
		}
	}
	if o.Code != 0 {
		fmt.Fprintf(b, "%s%d\n", exitMark, o.Code)
	}
	for _, file := range o.Files {
		b.WriteString(fileMark + file + "\n")
	}
}

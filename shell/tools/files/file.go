package files

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// kind is the description of a file's type.
type kind struct{ text, mime, charset string }

// headSize is the number of bytes of a file that are examined.
const headSize = 1 << 20

// file tells what files are.
func file(c *tool.Call) int {
	f, ok := c.Flags("bihLf:F:z0nNskrplvCceEm:P:dS", "brief=b", "mime=i", "mime-type=\x81", "mime-encoding=\x82", "dereference=L", "no-dereference=h", "files-from=f",
		"separator=F", "print0=0", "no-pad=N", "keep-going=k", "raw=r", "uncompress=z", "extension=\x83", "exclude=\x84:", "special-files=s", "no-buffer=n")
	if !ok {
		return 1
	}
	names := f.Args
	if f.Has('f') {
		data, err := readFile(c, f.Value('f', ""))
		if err != nil {
			return c.Errorf(1, "Cannot open `%s' (%s)", f.Value('f', ""), errText(err))
		}
		names = append(strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), names...)
	}
	if len(names) == 0 {
		fmt.Fprintln(c.Err, "Usage: file [OPTION...] [FILE...]")
		return 1
	}
	wide := 0
	for _, n := range names {
		wide = max(wide, width(n))
	}
	sep := f.Value('F', ":")
	out := c.Buffered()
	for _, n := range names {
		if !c.Step(16) {
			return 1
		}
		k := kindOf(c, n, f.Has('L'))
		if !f.Has('b') {
			shown := n
			if n == "-" {
				shown = "/dev/stdin"
			}
			out.WriteString(shown + sep)
			if f.Has('0') {
				out.WriteByte(0)
			}
			out.WriteByte(' ')
			if !f.Has('N') {
				out.WriteString(strings.Repeat(" ", wide-width(n)))
			}
		}
		switch {
		case f.Has('i') && k.mime != "":
			out.WriteString(k.mime + "; charset=" + k.charset)
		case f.Has(0x81) && k.mime != "":
			out.WriteString(k.mime)
		case f.Has(0x82) && k.mime != "":
			out.WriteString(k.charset)
		default:
			out.WriteString(k.text)
		}
		out.WriteByte('\n')
	}
	return flush(c, out, 0)
}

// kindOf looks at one file.
func kindOf(c *tool.Call, name string, deref bool) kind {
	var in io.ReadCloser
	if name != "-" {
		look := lstat
		if deref {
			look = statOf
		}
		i, err := look(c, name)
		if err != nil {
			return kind{text: fmt.Sprintf("cannot open `%s' (%s)", name, errText(err))}
		}
		if k, ok := special2(c, name, i); ok {
			return k
		}
	}
	in, err := c.OpenIn(name)
	if err != nil {
		return kind{"regular file, no read permission", "application/octet-stream", "binary"}
	}
	defer in.Close()
	if c.Pay(headSize) != nil {
		return kind{}
	}
	defer func() { _ = c.Pay(-headSize) }()
	head := make([]byte, headSize)
	n, err := io.ReadFull(in, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return kind{text: "cannot read (" + errText(err) + ")"}
	}
	if !c.Step(n>>6 + 1) {
		return kind{}
	}
	return identify(head[:n], n == headSize)
}

// special2 recognizes files that are not regular.
func special2(c *tool.Call, name string, i vfs.Info) (kind, bool) {
	mime := func(s string) string { return "inode/" + s }
	switch typeLetter(i.Mode) {
	case 'd':
		text := "directory"
		p := permBits(i.Mode)
		if p&0o1000 != 0 {
			text = "sticky, " + text
		}
		if p&0o2000 != 0 {
			text = "setgid, " + text
		}
		return kind{text, mime("directory"), "binary"}, true
	case 'l':
		if _, err := statOf(c, name); err != nil {
			return kind{"broken symbolic link to " + i.Target, mime("symlink"), "binary"}, true
		}
		return kind{"symbolic link to " + i.Target, mime("symlink"), "binary"}, true
	case 'p':
		return kind{"fifo (named pipe)", mime("fifo"), "binary"}, true
	case 's':
		return kind{"socket", mime("socket"), "binary"}, true
	case 'c':
		major, minor := device(i)
		return kind{fmt.Sprintf("character special (%d/%d)", major, minor), mime("chardevice"), "binary"}, true
	}
	if i.Size == 0 {
		return kind{"empty", mime("x-empty"), "binary"}, true
	}
	return kind{}, false
}

// signature is the bytes at the beginning of a type of file.
type signature struct {
	at         int
	magic      string
	text, mime string
}

var signatures = []signature{
	{0, "\x89PNG\r\n\x1a\n", "PNG image data", "image/png"}, {0, "GIF87a", "GIF image data, version 87a", "image/gif"}, {0, "GIF89a", "GIF image data, version 89a", "image/gif"},
	{0, "\xff\xd8\xff", "JPEG image data", "image/jpeg"}, {0, "BM", "PC bitmap", "image/bmp"}, {0, "II*\x00", "TIFF image data, little-endian", "image/tiff"}, {0, "MM\x00*", "TIFF image data, big-endian", "image/tiff"},
	{8, "WEBP", "RIFF (little-endian) data, Web/P image", "image/webp"}, {8, "WAVE", "RIFF (little-endian) data, WAVE audio", "audio/x-wav"}, {8, "AVI ", "RIFF (little-endian) data, AVI", "video/x-msvideo"},
	{0, "BZh", "bzip2 compressed data", "application/x-bzip2"},
	{0, "\xfd7zXZ\x00", "XZ compressed data", "application/x-xz"}, {0, "\x28\xb5\x2f\xfd", "Zstandard compressed data (v0.8+)", "application/zstd"},
	{0, "\x04\"M\x18", "LZ4 compressed data (v1.4+)", "application/x-lz4"}, {0, "7z\xbc\xaf\x27\x1c", "7-zip archive data", "application/x-7z-compressed"},
	{0, "Rar!\x1a\x07", "RAR archive data", "application/x-rar"}, {0, "%PDF-", "PDF document", "application/pdf"},
	{0, "%!PS", "PostScript document text", "application/postscript"}, {0, "SQLite format 3\x00", "SQLite 3.x database", "application/vnd.sqlite3"},
	{0, "\x00asm", "WebAssembly (wasm) binary module", "application/wasm"}, {0, "ID3", "Audio file with ID3", "audio/mpeg"}, {0, "OggS", "Ogg data", "application/ogg"},
	{0, "fLaC", "FLAC audio bitstream data", "audio/flac"}, {4, "ftyp", "ISO Media", "video/mp4"}, {0, "!<arch>\n", "current ar archive", "application/x-archive"},
	{0, "070701", "ASCII cpio archive (SVR4 with no CRC)", "application/x-cpio"}, {0, "070707", "ASCII cpio archive (pre-SVR4 or odc)", "application/x-cpio"},
	{0, "\xca\xfe\xba\xbe", "compiled Java class data", "application/x-java-applet"}, {0, "wOFF", "Web Open Font Format", "font/woff"}, {0, "wOF2", "Web Open Font Format (Version 2)", "font/woff2"},
	{0, "MZ", "MS-DOS executable", "application/x-dosexec"}, {0, tool.ProgramMark, "Carrel simulated program", "application/x-executable"},
	{0, "diff --git ", "", "text/x-diff"}, {0, "-----BEGIN CERTIFICATE-----", "PEM certificate", "text/plain"}, {0, "-----BEGIN PGP", "PGP", "text/plain"},
}

// identify recognizes a file by its contents.
func identify(b []byte, cut bool) kind {
	if len(b) == 0 {
		return kind{"empty", "inode/x-empty", "binary"}
	}
	if len(b) == 1 && b[0] < 0x20 && b[0] != '\n' && b[0] != '\t' {
		return kind{"very short file (no magic)", "application/octet-stream", "binary"}
	}
	if k, ok := binaryKind(b); ok {
		return k
	}
	for _, s := range signatures {
		if s.text != "" && len(b) >= s.at+len(s.magic) && string(b[s.at:s.at+len(s.magic)]) == s.magic && (s.magic != "BM" || len(b) > 26 && isBinary(b)) && (s.magic != "MZ" || isBinary(b)) {
			charset := "binary"
			if !isBinary(b) {
				charset = "us-ascii"
			}
			return kind{s.text + details(s.magic, b), s.mime, charset}
		}
	}
	return textKind(b, cut)
}

func isBinary(b []byte) bool {
	return bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b)
}

// details returns the text that follows a signature's description.
func details(magic string, b []byte) string {
	switch {
	case strings.HasPrefix(magic, "\x89PNG") && len(b) >= 29:
		colors := map[byte]string{0: "grayscale", 2: "/color RGB", 3: "colormap", 4: "gray+alpha", 6: "/color RGBA"}
		interlace := "non-interlaced"
		if b[28] == 1 {
			interlace = "interlaced"
		}
		sep := " "
		if strings.HasPrefix(colors[b[25]], "/") {
			sep = ""
		}
		return fmt.Sprintf(", %d x %d, %d-bit%s%s, %s", binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:]), b[24], sep, colors[b[25]], interlace)
	case strings.HasPrefix(magic, "GIF8") && len(b) >= 10:
		return fmt.Sprintf(", %d x %d", binary.LittleEndian.Uint16(b[6:]), binary.LittleEndian.Uint16(b[8:]))
	case magic == "BZh" && len(b) > 3:
		return fmt.Sprintf(", block size = %c00k", b[3])
	case magic == "%PDF-" && len(b) >= 8:
		return ", version " + strings.TrimSpace(string(b[5:8]))
	case magic == "\x28\xb5\x2f\xfd":
		return ", Dictionary ID: None"
	case magic == "\xfd7zXZ\x00" && len(b) > 7:
		return map[byte]string{0: ", checksum NONE", 1: ", checksum CRC32", 4: ", checksum CRC64", 10: ", checksum SHA-256"}[b[7]]
	case magic == "\x00asm" && len(b) > 7:
		return fmt.Sprintf(" version %#x (MVP)", binary.LittleEndian.Uint32(b[4:]))
	}
	return ""
}

// binaryKind recognizes types that need more than a signature.
func binaryKind(b []byte) (kind, bool) {
	switch {
	case bytes.HasPrefix(b, []byte("\x7fELF")) && len(b) >= 20:
		return elf(b), true
	case bytes.HasPrefix(b, []byte("\x1f\x8b")) && len(b) >= 10:
		return gzipKind(b), true
	case bytes.HasPrefix(b, []byte("PK\x05\x06")):
		return kind{"Zip archive data (empty)", "application/zip", "binary"}, true
	case bytes.HasPrefix(b, []byte("PK\x03\x04")) && len(b) >= 30:
		return zipKind(b), true
	case len(b) >= 262 && string(b[257:262]) == "ustar":
		if string(b[257:265]) == "ustar  \x00" {
			return kind{"POSIX tar archive (GNU)", "application/x-tar", "binary"}, true
		}
		return kind{"POSIX tar archive", "application/x-tar", "binary"}, true
	}
	return kind{}, false
}

func elf(b []byte) kind {
	order := binary.ByteOrder(binary.LittleEndian)
	bits, end := "32-bit", "LSB"
	if b[4] == 2 {
		bits = "64-bit"
	}
	if b[5] == 2 {
		order, end = binary.BigEndian, "MSB"
	}
	types := map[uint16][2]string{1: {"relocatable", "application/x-object"}, 2: {"executable", "application/x-executable"}, 3: {"shared object", "application/x-sharedlib"}, 4: {"core file", "application/x-coredump"}}
	machines := map[uint16]string{3: "Intel 80386", 40: "ARM", 62: "x86-64", 183: "ARM aarch64", 243: "UCB RISC-V"}
	t := types[order.Uint16(b[16:])]
	return kind{fmt.Sprintf("ELF %s %s %s, %s, version 1 (SYSV)", bits, end, t[0], machines[order.Uint16(b[18:])]), t[1], "binary"}
}

func gzipKind(b []byte) kind {
	text := "gzip compressed data"
	if b[3]&8 != 0 {
		name := b[10:]
		if b[3]&4 != 0 && len(b) > 12 {
			name = b[min(len(b), 12+int(binary.LittleEndian.Uint16(b[10:]))):]
		}
		if end := bytes.IndexByte(name, 0); end >= 0 {
			text += fmt.Sprintf(", was \"%s\"", name[:end])
		}
	}
	if mtime := binary.LittleEndian.Uint32(b[4:]); mtime != 0 {
		text += ", last modified: " + strftime("%a %b %e %H:%M:%S %Y", unix(int64(mtime)))
	}
	switch b[8] {
	case 2:
		text += ", max compression"
	case 4:
		text += ", max speed"
	}
	if systems := map[byte]string{0: "FAT filesystem (MS-DOS, OS/2, NT)", 3: "Unix", 255: ""}; systems[b[9]] != "" {
		text += ", from " + systems[b[9]]
	}
	if len(b) > 18 {
		text += fmt.Sprintf(", original size modulo 2^32 %d", binary.LittleEndian.Uint32(b[len(b)-4:]))
	}
	return kind{text, "application/gzip", "binary"}
}

func zipKind(b []byte) kind {
	nameLen := int(binary.LittleEndian.Uint16(b[26:]))
	name := string(b[30:min(len(b), 30+nameLen)])
	switch {
	case strings.HasPrefix(name, "[Content_Types].xml"), strings.HasPrefix(name, "word/"):
		return kind{"Microsoft OOXML", "application/octet-stream", "binary"}
	case name == "META-INF/" || name == "META-INF/MANIFEST.MF":
		return kind{"Java archive data (JAR)", "application/java-archive", "binary"}
	}
	method := map[uint16]string{0: "store", 8: "deflate"}[binary.LittleEndian.Uint16(b[8:])]
	v := binary.LittleEndian.Uint16(b[4:])
	return kind{fmt.Sprintf("Zip archive data, at least v%d.%d to extract, compression method=%s", v/10, v%10, method), "application/zip", "binary"}
}

// textKind describes text: its encoding, its language and its lines.
func textKind(b []byte, cut bool) kind {
	encoding, charset, ok := encodingOf(b, cut)
	if !ok {
		return kind{"data", "application/octet-stream", "binary"}
	}
	lang, mime := language(b)
	text := lang
	if text != "" {
		text += ", "
	}
	text += encoding + " text"
	if lang == "CSV" && charset == "us-ascii" {
		text = "CSV text"
	}
	if lang == "JSON" {
		return kind{"JSON text data", "application/json", charset}
	}
	if lang == "NDJSON" {
		return kind{"New Line Delimited JSON text data", "application/x-ndjson", charset}
	}
	if suffix, ok := strings.CutPrefix(lang, "="); ok {
		text = suffix + ", " + encoding + " text"
	}
	if strings.HasSuffix(lang, " script") {
		text = lang + ", " + encoding + " text executable"
	}
	text += lineKinds(b)
	return kind{text, mime, charset}
}

// encodingOf returns the encoding of a text.
func encodingOf(b []byte, cut bool) (text, charset string, ok bool) {
	if cut {
		for n := 0; n < 3 && !utf8.Valid(b); n++ {
			b = b[:len(b)-1]
		}
	}
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")) && len(b)%2 == 0:
		return "Unicode text, UTF-16, little-endian", "utf-16le", true
	case bytes.HasPrefix(b, []byte("\xfe\xff")) && len(b)%2 == 0:
		return "Unicode text, UTF-16, big-endian", "utf-16be", true
	}
	ascii, latin := true, true
	for _, x := range b {
		switch {
		case x >= 0x80:
			ascii = false
			if x < 0xa0 {
				latin = false
			}
		case x < 0x20 && bytes.IndexByte([]byte("\a\b\t\n\f\r\x1b"), x) < 0, x == 0x7f:
			return "", "", false
		}
	}
	switch {
	case ascii:
		return "ASCII", "us-ascii", true
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) && utf8.Valid(b):
		return "Unicode text, UTF-8 (with BOM)", "utf-8", true
	case utf8.Valid(b):
		return "Unicode text, UTF-8", "utf-8", true
	case latin:
		return "ISO-8859", "iso-8859-1", true
	}
	return "Non-ISO extended-ASCII", "unknown-8bit", true
}

// lineKinds describes the line ends.
func lineKinds(b []byte) string {
	longest, start := 0, 0
	for i, x := range b {
		if x == '\n' {
			longest = max(longest, i-start)
			start = i + 1
		}
	}
	longest = max(longest, len(b)-start)
	crlf := bytes.Count(b, []byte("\r\n"))
	lf := bytes.Count(b, []byte("\n")) - crlf
	cr := bytes.Count(b, []byte("\r")) - crlf
	text := ""
	if longest > 8192 {
		text += fmt.Sprintf(", with very long lines (%d)", longest)
	}
	var ends []string
	if crlf+lf+cr == 0 {
		text += ", with no line terminators"
	} else if crlf > 0 || cr > 0 {
		for _, e := range []struct {
			n    int
			name string
		}{{crlf, "CRLF"}, {cr, "CR"}, {lf, "LF"}} {
			if e.n > 0 {
				ends = append(ends, e.name)
			}
		}
		text += ", with " + strings.Join(ends, ", ") + " line terminators"
	}
	if bytes.IndexByte(b, 0x1b) >= 0 {
		text += ", with escape sequences"
	}
	if bytes.IndexByte(b, '\b') >= 0 {
		text += ", with overstriking"
	}
	return text
}

// language guesses the language of a text. A name that begins with "=" is printed in the place of
// "text".
func language(b []byte) (name, mime string) {
	if bytes.HasPrefix(b, []byte("#!")) {
		return scriptKind(b)
	}
	trimmed := bytes.TrimSpace(b)
	lower := strings.ToLower(string(trimmed[:min(len(trimmed), 4096)]))
	switch {
	case (bytes.HasPrefix(trimmed, []byte("{")) || bytes.HasPrefix(trimmed, []byte("["))) && json.Valid(trimmed):
		return "JSON", "application/json"
	case bytes.HasPrefix(trimmed, []byte("{")) && ndjson(trimmed):
		return "NDJSON", "application/x-ndjson"
	case strings.HasPrefix(lower, "<!doctype html"), strings.HasPrefix(lower, "<html"), strings.HasPrefix(lower, "<head"):
		return "HTML document", "text/html"
	case strings.HasPrefix(lower, "<?xml"):
		if strings.Contains(lower, "<svg") {
			return "SVG Scalable Vector Graphics image", "image/svg+xml"
		}
		return "XML 1.0 document", "text/xml"
	case strings.HasPrefix(lower, "<svg"):
		return "SVG Scalable Vector Graphics image", "image/svg+xml"
	case strings.HasPrefix(lower, "<?php"):
		return "PHP script", "text/x-php"
	case strings.HasPrefix(lower, "diff "), strings.HasPrefix(lower, "--- ") && strings.Contains(lower, "\n+++ "):
		return "unified diff output", "text/x-diff"
	case strings.Contains(lower, "#include <") || strings.Contains(lower, "#include \""):
		return "C source", "text/x-c"
	case strings.HasPrefix(lower, "\\documentclass"):
		return "LaTeX 2e document", "text/x-tex"
	case strings.HasPrefix(lower, "import ") && strings.Contains(lower, "\ndef "), strings.HasPrefix(lower, "def ") && strings.Contains(lower, "):"), strings.HasPrefix(lower, "from ") && strings.Contains(lower, " import "):
		return "Python script", "text/x-script.python"
	case csv(b):
		return "CSV", "text/csv"
	}
	return "", "text/plain"
}

func ndjson(b []byte) bool {
	n := 0
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' || !json.Valid(line) {
			return false
		}
		n++
	}
	return n > 1
}

// csv reports whether the first ten lines of a text have the same number of columns.
func csv(b []byte) bool {
	columns, n := 0, 0
	for line := range bytes.Lines(b) {
		commas, quote := 0, false
		for _, x := range line {
			switch {
			case x == '"':
				quote = !quote
			case x == ',' && !quote:
				commas++
			}
		}
		if n == 0 {
			columns = commas
		}
		if commas == 0 || commas != columns {
			return false
		}
		if n++; n == 10 {
			return true
		}
	}
	return n >= 2
}

// scriptKind reads a #! line.
func scriptKind(b []byte) (name, mime string) {
	line, _, _ := bytes.Cut(b[2:], []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return "", "text/plain"
	}
	prog := lastName(words[0])
	env := prog == "env" && len(words) > 1
	if env {
		prog = words[1]
	}
	switch {
	case prog == "bash":
		return "Bourne-Again shell script", "text/x-shellscript"
	case prog == "sh" || prog == "dash":
		if prog == "dash" {
			return "a /bin/dash script", "text/plain"
		}
		return "POSIX shell script", "text/x-shellscript"
	case prog == "zsh":
		return "Paul Falstad's zsh script", "text/x-shellscript"
	case strings.HasPrefix(prog, "python"):
		return "Python script", "text/x-script.python"
	case prog == "perl":
		return "Perl script", "text/x-perl"
	case prog == "ruby":
		return "Ruby script", "text/x-ruby"
	case prog == "node":
		return "Node.js script", "application/javascript"
	case prog == "awk" || prog == "gawk":
		return "awk script", "text/x-awk"
	}
	return "a " + strings.Join(words, " ") + " script", "text/plain"
}

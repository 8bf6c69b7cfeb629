package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color/palette"
	"image/draw"
	_ "image/jpeg" // pictures of cells
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// picture is a value's picture.
type picture struct {
	kind string // its file's extension
	data []byte
}

// pictures is how pictures are shown.
type pictures struct{ how, dir string }

// check checks the flag.
func (p pictures) check() error {
	switch p.how {
	case "auto", "kitty", "iterm", "sixel", "files":
		return nil
	}
	return fmt.Errorf("--pictures: %q is none of kitty, iterm, sixel, files and auto", p.how)
}

// protocol is how this terminal shows pictures, "files" if it does not.
func (p pictures) protocol(terminal bool) string {
	term, program := os.Getenv("TERM"), os.Getenv("TERM_PROGRAM")
	switch {
	case p.how != "auto":
		return p.how
	case !terminal:
	case term == "xterm-kitty", term == "xterm-ghostty", os.Getenv("KITTY_WINDOW_ID") != "":
		return "kitty"
	case program == "iTerm.app", program == "WezTerm":
		return "iterm"
	case strings.Contains(term, "sixel"), term == "foot", term == "mlterm":
		return "sixel"
	}
	return "files"
}

// show shows a picture. What the terminal can't show becomes a file, whose name goes to out.
func (p pictures) show(out, errw io.Writer, pic picture, terminal bool) error {
	how := p.protocol(terminal)
	bitmap := pic.kind == "png" || pic.kind == "jpg"
	switch {
	case how == "kitty" && bitmap:
		raw, err := asPNG(pic)
		if err == nil {
			return kitty(out, raw)
		}
	case how == "iterm" && bitmap:
		_, err := fmt.Fprintf(out, "\x1b]1337;File=inline=1;size=%d:%s\a\n", len(pic.data),
			base64.StdEncoding.EncodeToString(pic.data))
		return err
	case how == "sixel" && bitmap:
		img, _, err := decode(pic.data)
		if err == nil {
			return sixel(out, img)
		}
	}
	name, err := p.save(pic)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "picture: %s\n", name)
	return err
}

// save writes a picture to the first free name. It replaces no file.
func (p pictures) save(pic picture) (string, error) {
	for n := 1; ; n++ {
		name := filepath.Join(p.dir, fmt.Sprintf("picture-%d.%s", n, pic.kind))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(pic.data)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return name, err
	}
}

// maxPixels bounds a picture that is decoded here. A sandbox's picture may announce any size.
const maxPixels = 64 << 20

// decode decodes a picture of a sandbox.
func decode(data []byte) (image.Image, string, error) {
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, "", err
	}
	if c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height {
		return nil, "", fmt.Errorf("a picture of %d by %d points", c.Width, c.Height)
	}
	return image.Decode(bytes.NewReader(data))
}

// asPNG returns a picture as PNG.
func asPNG(pic picture) ([]byte, error) {
	if pic.kind == "png" {
		return pic.data, nil
	}
	img, _, err := decode(pic.data)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = png.Encode(&b, img)
	return b.Bytes(), err
}

// kitty writes a picture by kitty's graphics protocol, in chunks.
func kitty(out io.Writer, raw []byte) error {
	const chunk = 4096
	text := base64.StdEncoding.EncodeToString(raw)
	for first := true; first || text != ""; first = false {
		part := text[:min(chunk, len(text))]
		text = text[len(part):]
		control := "m=" + strconv.Itoa(min(len(text), 1))
		if first {
			control = "a=T,f=100," + control
		}
		if _, err := fmt.Fprintf(out, "\x1b_G%s;%s\x1b\\", control, part); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}

// sixel writes a picture as sixels, in 256 colours: six rows at a time, colour by colour.
func sixel(out io.Writer, img image.Image) error {
	size := img.Bounds()
	pal := image.NewPaletted(image.Rect(0, 0, size.Dx(), size.Dy()), palette.Plan9)
	draw.FloydSteinberg.Draw(pal, pal.Rect, img, size.Min)
	var b bytes.Buffer
	b.WriteString("\x1bPq")
	for i, c := range pal.Palette {
		r, g, bl, _ := c.RGBA()
		fmt.Fprintf(&b, "#%d;2;%d;%d;%d", i, r*100/0xffff, g*100/0xffff, bl*100/0xffff)
	}
	for top := 0; top < pal.Rect.Dy(); top += 6 {
		sixelBand(&b, pal, top)
	}
	b.WriteString("\x1b\\\n")
	_, err := out.Write(b.Bytes())
	return err
}

// sixelBand writes six rows.
func sixelBand(b *bytes.Buffer, pal *image.Paletted, top int) {
	width := pal.Rect.Dx()
	rows := map[uint8][]byte{} // by colour: six bits for each column
	for y := top; y < min(top+6, pal.Rect.Dy()); y++ {
		for x := range width {
			c := pal.ColorIndexAt(x, y)
			if rows[c] == nil {
				rows[c] = make([]byte, width)
			}
			rows[c][x] |= 1 << (y - top)
		}
	}
	for c := range len(pal.Palette) {
		row := rows[uint8(c)]
		if row == nil {
			continue
		}
		fmt.Fprintf(b, "#%d", c)
		for x := 0; x < width; {
			n := x
			for n < width && row[n] == row[x] {
				n++
			}
			if run := n - x; run > 3 {
				fmt.Fprintf(b, "!%d%c", run, '?'+row[x])
			} else {
				b.WriteString(strings.Repeat(string('?'+rune(row[x])), run))
			}
			x = n
		}
		b.WriteByte('$')
	}
	b.WriteByte('-')
}

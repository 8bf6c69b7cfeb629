package cli

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// square is a picture of one colour.
func square(t *testing.T, width, height int) []byte {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, width, height))
	for i := range img.Pix {
		img.Pix[i] = 0xff
	}
	img.Set(0, 0, color.Black)
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPictures(t *testing.T) {
	raw := square(t, 40, 13)
	for how, want := range map[string][]string{
		"kitty": {"\x1b_Ga=T,f=100,m=0;iVBOR", "\x1b\\\n"},
		"iterm": {"\x1b]1337;File=inline=1;size=", ":iVBOR", "\a\n"},
		"sixel": {"\x1bPq#0;2;0;0;0", "!39~", "\x1b\\\n"},
		"files": {"picture: ", "picture-1.png"},
	} {
		t.Run(how, func(t *testing.T) {
			var out bytes.Buffer
			p := pictures{how: how, dir: t.TempDir()}
			if err := p.show(&out, &out, picture{"png", raw}, false); err != nil {
				t.Fatal(err)
			}
			for _, w := range want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("no %q in %q", w, out.String())
				}
			}
		})
	}
}

// TestHostilePicture shows pictures that no decoder should believe.
func TestHostilePicture(t *testing.T) {
	large := square(t, 4, 4)
	copy(large[16:24], []byte{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}) // its width and height
	for name, raw := range map[string][]byte{"huge": large, "no picture": []byte("\x1b]0;title\a")} {
		dir := t.TempDir()
		var out bytes.Buffer
		p := pictures{how: "sixel", dir: dir}
		if err := p.show(&out, &out, picture{"png", raw}, true); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: %q", name, out.String())
		}
		if kept, err := os.ReadFile(filepath.Join(dir, "picture-1.png")); err != nil || !bytes.Equal(kept, raw) {
			t.Errorf("%s: no file: %v", name, err)
		}
	}
}

func TestOpenCells(t *testing.T) {
	for cell, want := range map[string]bool{
		"1 + 1\n": false, "for i in x:\n": true, "f(1,\n": true, "f(1,\n2)\n": false,
		"for i in x:\n  print(i)\n": true, "for i in x:\n  print(i)\n\n": false, "a = {\n": true,
		"x = 1 \\\n": true,
	} {
		lines := strings.Split(strings.TrimSuffix(cell, "\n"), "\n")
		if got := isOpen(cell, lines[len(lines)-1]); got != want {
			t.Errorf("%q is open: %v", cell, got)
		}
	}
}

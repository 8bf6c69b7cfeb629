package overlay

import (
	"fmt"
	"strings"
)

// maxOptions is the longest text of options that mount(2) takes: a page, with its terminating zero.
const maxOptions = 4095

// quote makes a path safe within the text of an overlay's options. Overlayfs first splits the
// options at commas and the layers at colons. Then it removes a backslash before any character.
var quote = strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`)

// MountOptions returns the options of a mount as the text for mount(2). Paths are quoted for
// overlayfs (colons, commas, backslashes). lower lists the lower layers, topmost first. user is for
// a mount in a user namespace.
func MountOptions(lower []string, upper, work string, user bool) (string, error) {
	if len(lower) == 0 {
		return "", fmt.Errorf("overlay: no lower directory")
	}
	if (upper == "") != (work == "") {
		return "", fmt.Errorf("overlay: an upper layer needs a work directory, and the other way round")
	}
	for _, p := range append([]string{upper, work}, lower...) {
		if strings.IndexByte(p, 0) >= 0 {
			return "", fmt.Errorf("overlay: zero byte in the path %q", p)
		}
	}
	quoted := make([]string, len(lower))
	for i, l := range lower {
		if l == "" {
			return "", fmt.Errorf("overlay: an empty lower path")
		}
		quoted[i] = quote.Replace(l)
	}
	text := "lowerdir=" + strings.Join(quoted, ":")
	if upper != "" {
		text += ",upperdir=" + quote.Replace(upper) + ",workdir=" + quote.Replace(work)
	}
	// The content of an upper layer must be complete and in its place: no files whose content is
	// still in a lower layer, no directories that stand for others. With userxattr the kernel
	// ensures both.
	if user {
		text += ",userxattr"
	} else {
		text += ",redirect_dir=nofollow,metacopy=off"
	}
	if len(text) > maxOptions {
		return "", fmt.Errorf("overlay: the mount's options have %d bytes, the kernel takes %d: use shorter paths", len(text), maxOptions)
	}
	return text, nil
}

package image

import "strings"

// TwoKeys makes the Key of a built template: one that names the image's content, and one that names
// the settings. Templates of equal content can share one image.
func TwoKeys(content, settings string) string { return content + "/" + settings }

// HasContent reports whether a key of TwoKeys has a content.
func HasContent(key, content string) bool {
	rest, ok := strings.CutPrefix(key, content)
	return ok && content != "" && strings.HasPrefix(rest, "/")
}

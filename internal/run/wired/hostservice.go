package wired

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
)

// hostService says whether a box may reach a port on this machine's loopback that its policy opens.
// The person who runs the box is this machine's user. So every port may be opened except the API of
// a daemon, which may belong to other people.
func hostService(_ carrel.ID, port uint16) error {
	dirs := []string{config.Default().DataDir, "/var/lib/carrel"}
	if dir := os.Getenv("CARREL_DATA_DIR"); dir != "" {
		dirs = append(dirs, dir)
	}
	own := portOf("http://" + config.Default().Listen)
	for _, dir := range dirs {
		if port == own {
			break
		}
		own = announced(dir)
	}
	if port == own {
		return fmt.Errorf("port %d is the Carrel daemon's own: no box reaches it", port)
	}
	return nil
}

// announced returns the port on which the daemon of a data directory listens, or 0 if none does.
func announced(dir string) uint16 {
	raw, err := os.ReadFile(filepath.Join(dir, "daemon.json"))
	if err != nil {
		return 0
	}
	var d struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(raw, &d) != nil {
		return 0
	}
	return portOf(d.URL)
}

// portOf is the port of a URL; 0 if it names none.
func portOf(text string) uint16 {
	u, err := url.Parse(text)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(u.Port(), 10, 16)
	return uint16(n)
}

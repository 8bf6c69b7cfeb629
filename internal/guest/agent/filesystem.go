package agent

import (
	"net/http"

	"github.com/carrel-dev/carrel/internal/guest/filesystem/filesystemconnect"
)

// filesystemHandler serves filesystem.Filesystem.
func (a *Agent) filesystemHandler() (path string, h http.Handler) {
	return filesystemconnect.NewFilesystemHandler(filesystemconnect.UnimplementedFilesystemHandler{})
}

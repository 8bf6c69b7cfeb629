package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// maxFetch bounds one fetched file.
const maxFetch = 16 << 30

// fetch fetches a file into this filesystem. The sandbox's network policy decides what it reaches.
func fetch(ctx context.Context, o FetchOrder) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &carrel.Error{Kind: carrel.Unavailable,
			Err: fmt.Errorf("%s: the server answered %s", o.URL, resp.Status)}
	}
	tmp, err := os.CreateTemp("/", ".carrel-fetch-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, sum), io.LimitReader(resp.Body, maxFetch+1))
	if err != nil {
		return err
	}
	if n > maxFetch {
		return fmt.Errorf("%s: more than %d GiB", o.URL, maxFetch>>30)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); o.Checksum != "" &&
		!strings.EqualFold(got, o.Checksum) {
		return invalid("%s: its checksum is %s, not %s", o.URL, got, o.Checksum)
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	name := path.Base(req.URL.Path)
	if name == "/" || name == "." {
		if strings.HasSuffix(o.Target, "/") {
			return invalid("%s: the URL names no file, so the target must", o.URL)
		}
		name = path.Base(o.Target)
	}
	at := o.Placement
	at.Single = true
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		err := tw.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: n,
			ModTime: modified(resp), Format: tar.FormatPAX})
		if err == nil {
			_, err = io.Copy(tw, tmp)
		}
		w.CloseWithError(errors.Join(err, tw.Close()))
	}()
	defer r.Close()
	return Unpack(r, at)
}

// modified is the time of an answer's file.
func modified(resp *http.Response) time.Time {
	if t, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		return t
	}
	return time.Unix(0, 0)
}

package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// UploadPath is where the files of builds are uploaded. The SDKs send no key there: the URL itself
// is the permission.
const UploadPath = "/carrel/v1/uploads/"

// uploadTime is how long an upload's URL is good.
const uploadTime = time.Hour

// uploadKey signs the URLs of uploads. It is made anew with each server, unless several servers have
// one; see [Options].UploadKey.
type uploadKey [32]byte

// permission says who may upload what, and until when.
type permission struct {
	Project  string `json:"p"`
	Template string `json:"t"` // of the builds that want it, as the caller named it
	Hash     string `json:"h"`
	Until    int64  `json:"u"` // Unix seconds
}

// newUploadKey returns the key that all servers of a fleet have, or a random one if there is none.
func newUploadKey(shared []byte) (k uploadKey) {
	if len(shared) == len(k) {
		return uploadKey(shared)
	}
	_, _ = rand.Read(k[:]) // never fails: crypto/rand aborts the process instead
	return k
}

func (k *uploadKey) sign(text string) []byte {
	m := hmac.New(sha256.New, k[:])
	m.Write([]byte("upload " + text))
	return m.Sum(nil)
}

// path makes the path of an upload, with its signature.
func (k *uploadKey) path(p permission, now time.Time) string {
	p.Until = now.Add(uploadTime).Unix()
	raw, err := json.Marshal(p)
	if err != nil { // of texts and a number: can't fail
		panic(err)
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	return UploadPath + text + "." + base64.RawURLEncoding.EncodeToString(k.sign(text))
}

// read checks a path and returns its permission.
func (k *uploadKey) read(path string, now time.Time) (permission, error) {
	bad := func(why string) (permission, error) {
		return permission{},
			tell(carrel.Forbidden, "this URL %s", why)
	}
	text, signature, ok := strings.Cut(strings.TrimPrefix(path, UploadPath), ".")
	got, err := base64.RawURLEncoding.DecodeString(signature)
	if !ok || err != nil || !hmac.Equal(got, k.sign(text)) {
		return bad("was not signed by this daemon; ask for another")
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var p permission
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		return bad("can't be read")
	}
	if now.Unix() > p.Until {
		return bad("is too old; ask for another")
	}
	return p, nil
}

// upload keeps the archive in the request's body.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Builds == nil {
		return later("", "building templates")
	}
	p, err := s.uploadKey.read(r.URL.Path, time.Now())
	if err != nil {
		return err
	}
	ctx := carrel.WithCaller(r.Context(), carrel.Caller{Key: "upload", Project: p.Project,
		Role: carrel.RoleMember})
	body := &patientReader{r: r.Body, rc: http.NewResponseController(w)}
	if err := s.opts.Builds.PutUpload(ctx, p.Template, p.Hash, body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

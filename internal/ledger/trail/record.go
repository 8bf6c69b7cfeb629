package trail

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

const (
	maxText   = 256      // bytes of one text of a record
	maxTarget = 2 << 10  // bytes of its targets
	maxLine   = 64 << 10 // bytes of a line; a longer one is damage
)

// zeroHash is before the first record.
var zeroHash = strings.Repeat("0", 2*sha256.Size)

// sigContext is signed with each hash, so that the key's signatures mean nothing elsewhere.
const sigContext = "carrel audit trail 1\n"

// bound cuts a record's texts.
func bound(r carrel.TrailRecord) carrel.TrailRecord {
	for _, s := range []*string{&r.Key, &r.KeyID, &r.Person, &r.Project, &r.From, &r.Request, &r.Op, &r.Text} {
		*s = clip(*s, maxText)
	}
	r.Role = carrel.Role(clip(string(r.Role), maxText))
	r.Target = clip(r.Target, maxTarget)
	return r
}

// clip cuts a text between characters.
func clip(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// seal makes a record's line, and returns it with the record's hash. With a key, the hash is signed.
func seal(r carrel.TrailRecord, key ed25519.PrivateKey) (line []byte, hash string, err error) {
	r.Hash, r.Sig = "", ""
	body, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	body = escape(body)
	sum := sha256.Sum256(body)
	hash = hex.EncodeToString(sum[:])
	line = append(body[:len(body)-1], hashMark...)
	line = append(append(line, hash...), '"')
	if key != nil {
		sig := ed25519.Sign(key, append([]byte(sigContext), sum[:]...))
		line = append(line, `,"sig":"`...)
		line = append(base64.StdEncoding.AppendEncode(line, sig), '"')
	}
	return append(line, '}', '\n'), hash, nil
}

// hashMark stands before a line's hash. JSON escapes quotation marks in texts, so that no text of a
// record contains it.
const hashMark = `,"hash":"`

// parse reads a line, without its end. ok is false if it is no record. whole says that the record's
// own hash is right.
func parse(line []byte) (r carrel.TrailRecord, whole, ok bool) {
	if json.Unmarshal(line, &r) != nil || r.Seq <= 0 {
		return r, false, false
	}
	r.Line = bytes.Clone(line)
	i := bytes.LastIndex(line, []byte(hashMark))
	if i < 0 {
		return r, false, true
	}
	h := sha256.New()
	h.Write(line[:i])
	h.Write([]byte{'}'})
	whole = hex.EncodeToString(h.Sum(nil)) == r.Hash
	// Nothing but the hash and the signature may follow the part that was hashed.
	rest := hashMark + r.Hash + `"`
	if r.Sig != "" {
		rest += `,"sig":"` + r.Sig + `"`
	}
	return r, whole && string(line[i:]) == rest+"}", true
}

// signed reports whether a record has a right signature of its hash.
func signed(r carrel.TrailRecord, pub ed25519.PublicKey) bool {
	sig, err := base64.StdEncoding.DecodeString(r.Sig)
	sum, herr := hex.DecodeString(r.Hash)
	return err == nil && herr == nil && len(pub) == ed25519.PublicKeySize &&
		ed25519.Verify(pub, append([]byte(sigContext), sum...), sig)
}

// escape escapes what JSON leaves as it is and a terminal does not show.
func escape(raw []byte) []byte {
	hidden := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if bytes.IndexFunc(raw, hidden) < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw)+16)
	for _, r := range string(raw) {
		if !hidden(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		const base = 0x10000
		units := []rune{r}
		if r >= base {
			units = []rune{0xd800 + (r-base)>>10, 0xdc00 + (r-base)&0x3ff}
		}
		for _, u := range units {
			out = append(out, '\\', 'u')
			out = append(out, hex.EncodeToString([]byte{byte(u >> 8), byte(u)})...)
		}
	}
	return out
}

// stamp is the form of a record's time: UTC, to the microsecond.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// sign signs a hash.
func sign(key ed25519.PrivateKey, hash string) string {
	sum, err := hex.DecodeString(hash)
	if err != nil { // it is our own
		return ""
	}
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, append([]byte(sigContext), sum...)))
}

package registry

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/carrel-dev/carrel"
)

// authenticator returns the credentials for a registry: those of the request, or else those of the
// keychain.
func (c *Client) authenticator(ctx context.Context, op string, reg name.Registry,
	own *carrel.RegistryCredentials, keys authn.Keychain) (authn.Authenticator, error) {
	if own == nil {
		if keys == nil {
			return authn.Anonymous, nil
		}
		return keys.Resolve(reg)
	}
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "credentials." + field,
			Err: fmt.Errorf(format, args...)}
	}
	switch own.Type {
	case "", carrel.CredentialsBasic:
		switch {
		case own.Username == "":
			return nil, bad("username", "missing")
		case own.Password == "":
			return nil, bad("password", "missing")
		}
		return &authn.Basic{Username: own.Username, Password: own.Password}, nil
	case carrel.CredentialsGCP:
		var key struct {
			Type string `json:"type"`
		}
		if json.Unmarshal([]byte(own.ServiceAccountJSON), &key) != nil || key.Type == "" {
			return nil, bad("serviceAccountJson", "it is no key file of a service account")
		}
		return &authn.Basic{Username: "_json_key", Password: own.ServiceAccountJSON}, nil
	case carrel.CredentialsAWS:
		switch {
		case own.AWSAccessKeyID == "":
			return nil, bad("awsAccessKeyId", "missing")
		case own.AWSSecretAccessKey == "":
			return nil, bad("awsSecretAccessKey", "missing")
		case !awsRegion.MatchString(own.AWSRegion):
			return nil, bad("awsRegion", "%.50q is no region, such as eu-west-1", own.AWSRegion)
		}
		if c.cfg.AWSEndpoint == "" && !awsRegistry.MatchString(reg.RegistryStr()) {
			return nil, bad("type", "%s is no registry of Amazon ECR", reg.RegistryStr())
		}
		return c.ecrToken(ctx, op, own)
	}
	return nil, bad("type", "%.50q is not registry, aws or gcp", own.Type)
}

var (
	awsRegion   = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]+$`)
	awsRegistry = regexp.MustCompile(`^[0-9]+\.dkr\.ecr(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$`)
)

// ecrTarget is the operation that gives a password for Amazon ECR.
const ecrTarget = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"

// ecrToken exchanges an AWS account's keys for a password of its registry.
func (c *Client) ecrToken(ctx context.Context, op string,
	own *carrel.RegistryCredentials) (authn.Authenticator, error) {
	endpoint := c.cfg.AWSEndpoint
	if endpoint == "" {
		endpoint = "https://api.ecr." + own.AWSRegion + ".amazonaws.com/"
		if strings.HasPrefix(own.AWSRegion, "cn-") {
			endpoint = "https://api.ecr." + own.AWSRegion + ".amazonaws.com.cn/"
		}
	}
	body := []byte("{}")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", ecrTarget)
	signAWS(req, body, own, "ecr", time.Now())
	// A redirect would carry a signature elsewhere, so none is followed.
	resp, err := c.carry.RoundTrip(req)
	if err != nil {
		return nil, classify(op, "Amazon ECR", req.URL.Host, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, classify(op, "Amazon ECR", req.URL.Host, err)
	}
	if resp.StatusCode != http.StatusOK {
		var said struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		_ = json.Unmarshal(raw, &said)
		return nil, &carrel.Error{Op: op, Kind: carrel.Unauthenticated, Field: "credentials",
			Err: fmt.Errorf("%s gives no token: %s %.200s %.200s", req.URL.Host, resp.Status, said.Type,
				said.Message),
			Hint: "the AWS keys need the right ecr:GetAuthorizationToken in that region"}
	}
	var answer struct {
		AuthorizationData []struct {
			AuthorizationToken string `json:"authorizationToken"`
		} `json:"authorizationData"`
	}
	if err := json.Unmarshal(raw, &answer); err == nil && len(answer.AuthorizationData) > 0 {
		plain, err := base64.StdEncoding.DecodeString(answer.AuthorizationData[0].AuthorizationToken)
		if user, password, ok := strings.Cut(string(plain), ":"); err == nil && ok {
			return &authn.Basic{Username: user, Password: password}, nil
		}
	}
	return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, Field: "credentials",
		Err: errors.New("the answer of Amazon ECR holds no token")}
}

// signAWS signs a request as AWS's "Signature Version 4" wants it. The headers that are set so far
// are signed.
func signAWS(req *http.Request, body []byte, own *carrel.RegistryCredentials, service string,
	now time.Time) {
	stamp := now.UTC().Format("20060102T150405Z")
	day := stamp[:8]
	req.Header.Set("X-Amz-Date", stamp)
	canonical := fmt.Sprintf("content-type:%s\nhost:%s\nx-amz-date:%s\nx-amz-target:%s\n",
		req.Header.Get("Content-Type"), req.URL.Host, stamp, req.Header.Get("X-Amz-Target"))
	const signed = "content-type;host;x-amz-date;x-amz-target"
	whole := strings.Join([]string{req.Method, awsPath(req.URL), "", canonical, signed, hexSum(body)},
		"\n")
	scope := strings.Join([]string{day, own.AWSRegion, service, "aws4_request"}, "/")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hexSum([]byte(whole))}, "\n")
	key := []byte("AWS4" + own.AWSSecretAccessKey)
	for _, part := range []string{day, own.AWSRegion, service, "aws4_request", text} {
		key = mac(key, part)
	}
	req.Header.Set("Authorization", fmt.Sprintf(
		"AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		own.AWSAccessKeyID, scope, signed, hex.EncodeToString(key)))
}

func awsPath(u *url.URL) string {
	if p := u.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/carrel-dev/carrel"
)

// answers are the server's error codes that do not mean "try later".
var answers = map[string]struct {
	kind carrel.Kind
	hint string
}{
	"NoSuchKey": {carrel.NotFound, ""},
	// Not NotFound: that would mean that a blob is gone, and a caller may act on it. Only Open
	// returns NotFound for a bucket.
	"NoSuchBucket":          {carrel.Unavailable, "create the bucket, or name another one in the snapshot store's URL"},
	"InvalidAccessKeyId":    {carrel.Unauthenticated, "is AWS_ACCESS_KEY_ID right, and of this endpoint?"},
	"XAdminUserNotFound":    {carrel.Unauthenticated, "is AWS_ACCESS_KEY_ID right, and of this endpoint?"}, // versitygw's word for it
	"SignatureDoesNotMatch": {carrel.Unauthenticated, "is AWS_SECRET_ACCESS_KEY right, and the region?"},
	"ExpiredToken":          {carrel.Unauthenticated, "get new temporary credentials and start the daemon with them"},
	"InvalidToken":          {carrel.Unauthenticated, "is AWS_SESSION_TOKEN right? Unset it for credentials that are not temporary"},
	"RequestTimeTooSkewed":  {carrel.Unauthenticated, "set this machine's clock: it differs from the server's"},
	"AccessDenied":          {carrel.Forbidden, "the key needs s3:GetObject, PutObject, DeleteObject, AbortMultipartUpload and ListBucket on the bucket"},
	"AccountProblem":        {carrel.Forbidden, ""},
	"AllAccessDisabled":     {carrel.Forbidden, ""},
	"PreconditionFailed":    {carrel.Conflict, "it was replaced meanwhile: try again"},
	"QuotaExceeded":         {carrel.Exhausted, "the bucket is full: delete snapshots, or raise its quota"},
	"XMinioStorageFull":     {carrel.Exhausted, "the server's disk is full"},
	"InsufficientStorage":   {carrel.Exhausted, "the server's disk is full"},
	"EntityTooLarge":        {carrel.Exhausted, "the server takes no objects of this size"},
	"InvalidBucketName":     {carrel.Invalid, "name another bucket in the snapshot store's URL"},

	"AuthorizationHeaderMalformed": {carrel.Invalid, "name the bucket's region in the snapshot store's URL: region=…"},
	"PermanentRedirect":            {carrel.Invalid, "name the bucket's region in the snapshot store's URL: region=…"},
	"IllegalLocationConstraint":    {carrel.Invalid, "name the bucket's region in the snapshot store's URL: region=…"},
	"NotImplemented":               {carrel.Unsupported, "this server lacks a part of S3 that Carrel needs"},
}

// failed wraps an error of the server, or of the connection to it. what is the blob's name, or
// another object of the call.
func (b *Blobs) failed(ctx context.Context, op, what string, err error) error {
	e := &carrel.Error{Op: op, Err: b.clean(what, err)}
	var own *carrel.Error
	answer := minio.ToErrorResponse(err)
	known, isKnown := answers[answer.Code]
	switch {
	case errors.As(err, &own): // an error of Put's reader, or ours
		e.Kind = carrel.KindOf(err)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Kind = carrel.TimedOut
	case errors.Is(err, context.Canceled):
		e.Kind = carrel.Unavailable
	case isKnown:
		e.Kind, e.Hint = known.kind, known.hint
	case answer.StatusCode == http.StatusInsufficientStorage:
		e.Kind, e.Hint = carrel.Exhausted, answers["InsufficientStorage"].hint
	case answer.StatusCode == http.StatusUnauthorized:
		e.Kind, e.Hint = carrel.Unauthenticated, answers["SignatureDoesNotMatch"].hint
	case answer.StatusCode == http.StatusForbidden:
		e.Kind, e.Hint = carrel.Forbidden, answers["AccessDenied"].hint
	case answer.StatusCode == http.StatusConflict:
		e.Kind, e.Hint = carrel.Conflict, answers["PreconditionFailed"].hint
	case answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusRequestTimeout && answer.StatusCode != http.StatusTooManyRequests:
		e.Kind = carrel.Internal // the server refuses the form of our request
	default: // a 5xx, or no answer
		e.Kind, e.Hint = carrel.Unavailable, "is "+b.loc.Endpoint+" reachable from here? Try again when it is"
	}
	return e
}

// clean keeps credentials out of an error's text, even when a server or proxy quotes the request.
// errors.Is still finds the cause.
func (b *Blobs) clean(what string, err error) error {
	text := err.Error()
	if r := minio.ToErrorResponse(err); r.Code != "" && !strings.Contains(text, r.Code) {
		text = r.Code + ": " + text
	}
	for _, secret := range []string{b.opts.SecretKey, b.opts.SessionToken} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return &answerError{what + ": " + text, err}
}

// answerError is an error with a text of our own.
type answerError struct {
	text  string
	cause error
}

func (e *answerError) Error() string { return e.text }

// Is compares with the cause. The cause's text is never printed.
func (e *answerError) Is(target error) bool { return errors.Is(e.cause, target) }

// As finds a *carrel.Error in the cause, with its kind and hint. Other errors are not found,
// because they may quote secrets.
func (e *answerError) As(target any) bool {
	if t, ok := target.(**carrel.Error); ok {
		return errors.As(e.cause, t)
	}
	return false
}

// invalid is the error for a caller's mistake.
func invalid(op, field, format string, args ...any) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}

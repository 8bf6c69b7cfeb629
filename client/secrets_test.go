package client_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/vault"
)

// TestSecrets shows that secrets and their errors are the same over HTTP as in the daemon.
func TestSecrets(t *testing.T) {
	v, err := vault.Open(t.TempDir(), vault.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(api.New(api.Options{Service: struct {
		*fake
		carrel.Secrets
	}{&fake{}, v.For("")}, Callers: adminKey("key"), Rekey: v.Rekey}))
	defer srv.Close()
	svc, err := client.New(srv.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	ctx, all := t.Context(), svc.(carrel.Secrets)
	made, err := all.CreateSecret(ctx, carrel.NewSecret{Name: "Key", Value: "value \"ö\"\n", Metadata: map[string]string{"a": "b"}, Hosts: []string{"*.example.com"}})
	if err != nil || made.Name != "key" || made.Version != 1 || made.Metadata["a"] != "b" || len(made.Hosts) != 1 || made.Created.IsZero() {
		t.Fatal(made, err)
	}
	if got, err := v.Reveal(ctx, "", "key", "a.example.com"); err != nil || got != "value \"ö\"\n" {
		t.Error("another value arrived", err)
	}
	if up, err := all.UpdateSecret(ctx, "key", "two", nil); err != nil || up.Version != 2 || up.Metadata["a"] != "b" {
		t.Error(up, err)
	}
	if up, err := all.UpdateSecret(ctx, made.ID, "three", map[string]string{}); err != nil || up.Version != 3 || len(up.Metadata) != 0 {
		t.Error(up, err)
	}
	if list, err := all.ListSecrets(ctx); err != nil || len(list) != 1 || list[0].ID != made.ID {
		t.Error(list, err)
	}
	if got, err := all.GetSecret(ctx, "KEY"); err != nil || got.Version != 3 {
		t.Error(got, err)
	}
	_, err = all.CreateSecret(ctx, carrel.NewSecret{Name: "key", Value: "canary"})
	if carrel.KindOf(err) != carrel.AlreadyExists || strings.Contains(err.Error(), "canary") || carrel.HintOf(err) == "" {
		t.Error(err)
	}
	if _, err = all.CreateSecret(ctx, carrel.NewSecret{Name: "a/b", Value: "canary"}); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}
	for _, ref := range []string{"none", "a/b", "..", "?x", "%2e"} {
		if _, err := all.GetSecret(ctx, ref); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if _, err := all.GetSecret(ctx, ""); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}
	rekey := svc.(interface {
		RekeySecrets(context.Context, []byte) error
	}).RekeySecrets
	if err := errors.Join(rekey(ctx, nil), rekey(ctx, []byte(strings.Repeat("k", 32)))); err != nil {
		t.Error(err)
	}
	if err := rekey(ctx, []byte("x")); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}
	if got, err := v.Reveal(ctx, "", "key", "a.example.com"); err != nil || got != "three" {
		t.Error("another value after a change of the key", err)
	}
	if err := all.DeleteSecret(ctx, "key"); err != nil {
		t.Error(err)
	}
	if err := all.DeleteSecret(ctx, "key"); carrel.KindOf(err) != carrel.NotFound {
		t.Error(err)
	}
}

package service_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service"
)

// bases has the templates base and host. While standIn is set, base has the image of host.
type bases struct {
	image.Store
	standIn bool
}

const (
	ownBaseID = "base0000000000000000"
	hostID    = "host0000000000000000"
)

func (b *bases) ByID(id string) (carrel.Template, bool) {
	switch id {
	case hostID:
		return carrel.Template{ID: hostID, Name: image.Host, BuiltIn: true}, true
	case ownBaseID:
		t := carrel.Template{ID: ownBaseID, Name: image.Base, BuiltIn: true}
		if b.standIn {
			t.StandIn = image.Host
		}
		return t, true
	}
	return carrel.Template{}, false
}

func (b *bases) Named(_, name string) (carrel.Template, bool) {
	return b.ByID(map[string]string{image.Base: ownBaseID, image.Host: hostID}[name])
}

func (b *bases) Get(_ context.Context, id string) (image.Image, error) {
	t, ok := b.ByID(id)
	switch {
	case !ok:
		return image.Image{}, &carrel.Error{Kind: carrel.NotFound, Err: errors.New("no such template")}
	case t.ID == hostID || t.StandIn != "":
		t.ID = hostID
		return image.Image{Template: t, Path: imagePath("host")}, nil
	}
	return image.Image{Template: t, Path: imagePath("base")}, nil
}

// TestStandInRecords shows what is recorded of sandboxes of base, before and after it has its own
// image, and what the template itself says.
func TestStandInRecords(t *testing.T) {
	images := &bases{standIn: true}
	h := newHouse(t, func(o *service.Options) { o.Images = images })
	for _, want := range []struct{ id, standIn string }{{hostID, image.Host}, {ownBaseID, ""}} {
		images.standIn = want.standIn != ""
		for _, ref := range []string{"", "base", "base:latest", ownBaseID} {
			sb, err := h.Create(t.Context(), carrel.CreateOptions{Template: ref})
			if err != nil || sb.Template != want.id || sb.Alias != "base" {
				t.Errorf("%q: %+v, %v", ref, sb, err)
			}
		}
		tm, err := h.GetTemplate(t.Context(), "base")
		if err != nil || tm.ID != ownBaseID || tm.Name != "base" || tm.StandIn != want.standIn {
			t.Errorf("%+v, %v", tm, err)
		}
	}
}

// TestFormerBase resumes sandboxes whose records name base, and whose own link to the image is
// lost. They lie on host, as in older programs, or on base, or on neither.
func TestFormerBase(t *testing.T) {
	for _, c := range []struct {
		liesOn  string
		standIn bool
		hint    string // of the failure; "" is success
	}{
		{imagePath("base"), false, ""}, {imagePath("host"), false, ""}, {imagePath("host"), true, ""},
		{"/gone", false, "put exactly this image back"},
		{imagePath("base"), true, "carrel template get base"},
	} {
		images := &bases{}
		d := newDen(t, func(o *service.Options) { o.Images = images })
		box := d.create(t, carrel.CreateOptions{})
		if _, err := d.Pause(t.Context(), box.ID, carrel.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(d.dir, ".roots")); err != nil {
			t.Fatal(err)
		}
		images.standIn = c.standIn
		d.moments.set(func() { d.moments.liesOn = c.liesOn })
		_, _, err := d.Resume(t.Context(), box.ID, carrel.ResumeOptions{})
		if c.hint == "" && err != nil ||
			c.hint != "" && !strings.Contains(carrel.HintOf(err), c.hint) {
			t.Errorf("on %s, stand-in %v: %v, hint %q", c.liesOn, c.standIn, err, carrel.HintOf(err))
		}
	}
}

func (b *bases) Boot(ctx context.Context, id string) (image.Image, error) { return b.Get(ctx, id) }

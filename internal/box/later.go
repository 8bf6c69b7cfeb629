//go:build linux

package box

import (
	"errors"
)

func (b *builder) resolver() error              { return nil }
func (b *builder) terminal() error              { return nil }
func (b *builder) layers() error                { return errors.New("layers: not built") }
func (b *builder) overlay(m Mount) (int, error) { return -1, errors.New("overlay: not built") }
func (b *builder) killAll()                     {}

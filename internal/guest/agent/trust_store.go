package agent

import (
	"crypto/sha1"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Names in PKCS #12.
var (
	oidData        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidCertBag     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidX509        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
	oidFriendly    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 20}
	oidJavaTrusted = asn1.ObjectIdentifier{2, 16, 840, 1, 113894, 746875, 1, 1}
	oidAnyUsage    = asn1.ObjectIdentifier{2, 5, 29, 37, 0}
)

// The parts of a PKCS #12 file in a trust store.
type (
	pfx struct {
		Version int
		Safe    contentInfo
	}
	contentInfo struct {
		Type    asn1.ObjectIdentifier
		Content []byte `asn1:"tag:0,explicit"`
	}
	safeBag struct {
		ID         asn1.ObjectIdentifier
		Value      certBag        `asn1:"tag:0,explicit"`
		Attributes []bagAttribute `asn1:"set"`
	}
	certBag struct {
		ID   asn1.ObjectIdentifier
		Data []byte `asn1:"tag:0,explicit"`
	}
	bagAttribute struct {
		ID     asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}
)

// trustStore makes a Java trust store from a bundle. It is neither encrypted nor signed, because
// all of it is public. Java opens it with any password.
func trustStore(bundle string) []byte {
	usage, _ := asn1.Marshal(oidAnyUsage)
	var bags []safeBag
	for rest := []byte(bundle); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		name := bmpString(fmt.Sprintf("carrel-%d", len(bags)))
		bags = append(bags, safeBag{ID: oidCertBag, Value: certBag{ID: oidX509, Data: b.Bytes}, Attributes: []bagAttribute{
			{ID: oidFriendly, Values: []asn1.RawValue{{Class: asn1.ClassUniversal, Tag: asn1.TagBMPString, Bytes: name}}},
			{ID: oidJavaTrusted, Values: []asn1.RawValue{{FullBytes: usage}}},
		}})
	}
	contents, err := asn1.Marshal(bags)
	if err != nil {
		return nil
	}
	safe, err := asn1.Marshal([]contentInfo{{oidData, contents}})
	if err != nil {
		return nil
	}
	store, err := asn1.Marshal(pfx{3, contentInfo{oidData, safe}})
	if err != nil {
		return nil
	}
	return store
}

func bmpString(s string) []byte {
	var b []byte
	for _, c := range utf16.Encode([]rune(s)) {
		b = binary.BigEndian.AppendUint16(b, c)
	}
	return b
}

// subjectHash returns the file name, without its number, under which OpenSSL looks for a
// certificate: a digest of the certificate's subject in a canonical form.
func subjectHash(subject []byte) (string, error) {
	type attribute struct {
		ID    asn1.ObjectIdentifier
		Value asn1.RawValue
	}
	var sets []asn1.RawValue
	if rest, err := asn1.Unmarshal(subject, &sets); err != nil || len(rest) > 0 {
		return "", errors.New("the subject is malformed")
	}
	var canonical []byte
	for _, set := range sets {
		var attributes []attribute
		if _, err := asn1.UnmarshalWithParams(set.FullBytes, &attributes, "set"); err != nil {
			return "", err
		}
		for i, a := range attributes {
			switch a.Value.Tag {
			case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String:
				text := strings.ToLower(strings.Join(strings.Fields(string(a.Value.Bytes)), " "))
				attributes[i].Value = asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagUTF8String, Bytes: []byte(text)}
			}
		}
		b, err := asn1.MarshalWithParams(attributes, "set")
		if err != nil {
			return "", err
		}
		canonical = append(canonical, b...)
	}
	sum := sha1.Sum(canonical)
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum[:])), nil
}

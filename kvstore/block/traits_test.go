package block_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"tandem/kvstore/block"
)

// Every leaf of Traits that can be set is found by reflection, so that a field that
// is added and not hashed fails here.
func TestEveryTraitChangesTheFingerprint(t *testing.T) {
	traits := clone(full())
	seen := map[block.Fingerprint]string{traits.Fingerprint(): "unchanged"}
	check := func(what string, f block.Fingerprint) {
		if other, ok := seen[f]; ok {
			t.Errorf("%s: same fingerprint as %s", what, other)
		}
		seen[f] = what
	}
	changeEach(reflect.ValueOf(&traits).Elem(), "Traits", func(what string) { check(what, traits.Fingerprint()) })
	if !reflect.DeepEqual(traits, full()) {
		t.Fatal("the walk did not restore what it changed")
	}
	if len(seen) < 140 {
		t.Errorf("only %d changes were tried", len(seen))
	}
}

// changeEach changes one leaf after the other, or the length of a list, calls try, and
// restores it.
func changeEach(v reflect.Value, path string, try func(what string)) {
	set := func(to any) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(reflect.ValueOf(to).Convert(v.Type()))
		try(fmt.Sprintf("%s = %v", path, to))
		v.Set(old)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			changeEach(v.Field(i), path+"."+v.Type().Field(i).Name, try)
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			changeEach(v.Index(i), fmt.Sprintf("%s[%d]", path, i), try)
		}
		if v.Kind() == reflect.Slice {
			set(v.Slice(1, v.Len()).Interface())
			set(v.Slice(0, v.Len()-1).Interface())
			set(reflect.Append(v, v.Index(0)).Interface())
		}
	case reflect.String:
		set(v.String() + "x")
		set("")
	case reflect.Bool:
		set(!v.Bool())
	case reflect.Int:
		set(v.Int() + 1)
		set(-v.Int() - 7)
	case reflect.Uint8, reflect.Uint32:
		set(v.Uint() + 1)
	case reflect.Float64:
		set(math.Nextafter(v.Float(), math.Inf(1)))
	default:
		panic("a trait of kind " + v.Kind().String() + ": teach changeEach to change it")
	}
}

// clone shares no list with in.
func clone(in block.Traits) block.Traits {
	in.Shape.Layers = append([]block.Layer(nil), in.Shape.Layers...)
	return in
}

// The message of the fingerprint can be cut into fields again in one way only, and
// that way gives every tag in order.
func TestFingerprintMessageIsAListOfFields(t *testing.T) {
	b := block.FingerprintMessage(full())
	var tags []byte
	for len(b) > 0 {
		n := binary.LittleEndian.Uint32(b[1:])
		tags = append(tags, b[0])
		b = b[5+n:]
	}
	for i, tag := range tags[:28] {
		if int(tag) != i {
			t.Errorf("field %d has tag %d", i, tag)
		}
	}
	if len(tags) != 29 || tags[28] != 27 {
		t.Errorf("tags %v; want 0 to 27, and 27 again for the second adapter", tags)
	}
}

func TestTraitsDoNotSlide(t *testing.T) {
	base := block.Traits{Architecture: "ab", Engine: "cd", RopeScaling: "x", RopeType: "yz", KVLayers: []int{1, 2}, HeadK: 3}
	pairs := map[string]func(*block.Traits){
		"from engine to architecture": func(x *block.Traits) { x.Architecture, x.Engine = "abc", "d" },
		"from architecture to engine": func(x *block.Traits) { x.Architecture, x.Engine = "a", "bcd" },
		"all in one":                  func(x *block.Traits) { x.Architecture, x.Engine = "abcd", "" },
		"a field in a text":           func(x *block.Traits) { x.Architecture, x.Engine = "ab\x03\x02\x00\x00\x00cd", "" },
		"exchanged texts":             func(x *block.Traits) { x.RopeScaling, x.RopeType = "yz", "x" },
		"from the list to the number": func(x *block.Traits) { x.KVLayers, x.HeadK = []int{1}, 2 },
		"numbers exchanged":           func(x *block.Traits) { x.HeadK, x.HeadV = 0, 3 },
		"scales exchanged":            func(x *block.Traits) { x.RopeBase, x.RopeScale = x.RopeScale, 1 },
	}
	for name, change := range pairs {
		other := base
		change(&other)
		if other.Fingerprint() == base.Fingerprint() {
			t.Errorf("%s: same fingerprint", name)
		}
	}
	one := block.Traits{Adapters: []block.Adapter{{Kind: "lora", Scale: 1}, {Kind: "control", Scale: 2}}}
	two := block.Traits{Adapters: []block.Adapter{{Kind: "control", Scale: 2}, {Kind: "lora", Scale: 1}}}
	if one.Fingerprint() == two.Fingerprint() {
		t.Error("the order of adapters does not matter")
	}
}

func TestTraitsValidate(t *testing.T) {
	if err := full().Validate(); err != nil {
		t.Error(err)
	}
	wide := block.Shape{Layers: make([]block.Layer, 8)}
	for i := range wide.Layers {
		r := block.Row{Type: block.F16, Values: block.RowBytesMax / 2}
		wide.Layers[i] = block.Layer{K: r, V: r}
	}
	for name, change := range map[string]func(*block.Traits){
		"no shape":            func(x *block.Traits) { x.Shape = block.Shape{} },
		"blocks of nothing":   func(x *block.Traits) { x.BlockTokens = 0 },
		"blocks too long":     func(x *block.Traits) { x.BlockTokens = block.CountMax + 1 },
		"payload too long":    func(x *block.Traits) { x.Shape, x.BlockTokens = wide, 65 },
		"base is no number":   func(x *block.Traits) { x.RopeBase = math.NaN() },
		"beta is no number":   func(x *block.Traits) { x.YarnBetaSlow = math.NaN() },
		"scale of an adapter": func(x *block.Traits) { x.Adapters = []block.Adapter{{Scale: math.NaN()}} },
	} {
		bad := full()
		change(&bad)
		if err := bad.Validate(); !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fits := full()
	fits.Shape, fits.BlockTokens = wide, 64
	if err := fits.Validate(); err != nil {
		t.Error(err)
	}
}

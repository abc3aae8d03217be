package builtin

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Name is the name under which the model is listed and asked for.
const Name = "tandem-tiny"

// GGUF is the model file.
//
//go:embed tandem-tiny.gguf
var GGUF []byte

//go:embed questions.json
var questionsJSON []byte

// Question is one entry of the list that the model is checked with.
type Question struct {
	Topic    string `json:"topic"`
	Question string `json:"question"`
	// Want holds groups of words in lower case; a right answer has at least one
	// of each group.
	Want [][]string `json:"want"`
	// HeldOut says that the model never saw this phrasing in training.
	HeldOut bool `json:"heldOut"`
}

// Questions returns the list.
func Questions() ([]Question, error) {
	var questions []Question
	if err := json.Unmarshal(questionsJSON, &questions); err != nil {
		return nil, fmt.Errorf("questions.json: %w", err)
	}
	return questions, nil
}

// Right tells whether answer holds what the question asks for; case does not
// count.
func (q Question) Right(answer string) bool {
	answer = strings.ToLower(answer)
	for _, group := range q.Want {
		if !holdsAny(answer, group) {
			return false
		}
	}
	return true
}

func holdsAny(text string, words []string) bool {
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

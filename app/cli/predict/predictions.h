// The predictions of plait predict: one function each, which takes the words after its name and
// returns the exit status.
#pragma once

#include "cli/bench/measurements.h"
#include "cli/verbs.h"
#include "plan/models.h"

namespace plait::cli {

int predict_operator(const MeasuredOperator& op, Words words);

// A layer of experts.
int predict_experts(Words words);

// The end of a model: what follows a product by shares of a vocabulary.
int predict_heads(Words words);

// A training step of a model.
int predict_model(const plan::Model& model, Words words);

// A comparison of measurements of plait bench with predictions.
int predict_measured(Words words);

}  // namespace plait::cli

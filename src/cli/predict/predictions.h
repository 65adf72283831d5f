// What plait predict can predict: one function each, which takes the words behind its name and
// answers with the exit status.
#pragma once

#include "cli/verbs.h"
#include "plait/operator.h"
#include "plan/models.h"

namespace plait::cli {

int predict_operator(Operator op, Words words);

// A training step of a model.
int predict_model(const Model& model, Words words);

// What plait bench has measured, beside what is predicted of it.
int predict_measured(Words words);

}  // namespace plait::cli

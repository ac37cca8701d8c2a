// Which stage a step of a pipeline takes, for the sources of its operands. Included once for each instruction set,
// inside its namespace, after stages.h.
#pragma once

static constexpr Source kBlockSource = Source::block, kMemory = Source::memory, kElement = Source::element;

template <class F>
static Stage pick_unary(Source a) {
  return a == kBlockSource ? unary_stage<F, kBlockSource> : a == kMemory ? unary_stage<F, kMemory> : nullptr;
}

template <float (*f)(float)>
static Stage pick_function(Source a) {
  return a == kBlockSource ? function_stage<f, kBlockSource> : a == kMemory ? function_stage<f, kMemory> : nullptr;
}

// Calls pick with a's source as a template argument.
#define ONNXFUSE_BY_SOURCE(source, ...)     \
  switch (source) {                         \
    case Source::block: {                   \
      constexpr Source S = Source::block;   \
      return __VA_ARGS__;                   \
    }                                       \
    case Source::memory: {                  \
      constexpr Source S = Source::memory;  \
      return __VA_ARGS__;                   \
    }                                       \
    default: {                              \
      constexpr Source S = Source::element; \
      return __VA_ARGS__;                   \
    }                                       \
  }

template <class F, Source a>
static Stage pick_second(Source b) {
  ONNXFUSE_BY_SOURCE(b, (binary_stage<F, a, S>))
}
template <class F>
static Stage pick_binary(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[0], (pick_second<F, S>(sources[1])))
}

template <Source a, Source b>
static Stage pick_multiply_add_third(Source c) {
  ONNXFUSE_BY_SOURCE(c, (multiply_add_stage<a, b, S>))
}
template <Source a>
static Stage pick_multiply_add_second(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[1], (pick_multiply_add_third<a, S>(sources[2])))
}
static Stage pick_multiply_add(const Source* sources) {
  return sources[0] == kBlockSource ? pick_multiply_add_second<kBlockSource>(sources)
         : sources[0] == kMemory    ? pick_multiply_add_second<kMemory>(sources)
                                    : nullptr;
}

#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
static Stage pick_exp_of_difference(const Source* sources) { return pick_binary<V_exp_of_difference>(sources); }

template <bool stores>
static Stage pick_exp_and_sum(const Source* sources) {
  if (sources[1] != kElement || sources[0] == kElement) return nullptr;
  return sources[0] == kBlockSource ? exp_and_sum_stage<kBlockSource, kElement, stores>
                                    : exp_and_sum_stage<kMemory, kElement, stores>;
}
#else
template <Source a>
static Stage pick_exp_second(Source b) {
  ONNXFUSE_BY_SOURCE(b, (exp_of_difference_stage<a, S>))
}
static Stage pick_exp_of_difference(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[0], (pick_exp_second<S>(sources[1])))
}

template <bool stores>
static Stage pick_exp_and_sum(const Source*) {
  return nullptr;
}
#endif

template <Vector (Divisor::*divide)(Vector) const>
static Stage pick_divide(Source a) {
  return a == kBlockSource ? divide_stage<divide, kBlockSource> : divide_stage<divide, kMemory>;
}

template <class F>
static Stage pick_bound(const Source* sources) {
  if (sources[1] != kElement || sources[0] == kElement) return pick_binary<F>(sources);
  return sources[0] == kBlockSource ? bound_stage<F, kBlockSource> : bound_stage<F, kMemory>;
}

static Stage pick_stage_of_primitive(Op op, const Source* sources) {
  switch (op) {
    case Op::op_add:
      return pick_binary<V_add>(sources);
    case Op::op_sub:
      return pick_binary<V_sub>(sources);
    case Op::op_mul:
      return pick_binary<V_mul>(sources);
    case Op::op_div:
      if (sources[1] == kElement && sources[0] != kElement) return pick_divide<&Divisor::divide>(sources[0]);
      return pick_binary<V_div>(sources);
    case Op::op_max:
      return pick_bound<V_max>(sources);
    case Op::op_min:
      return pick_bound<V_min>(sources);
    case Op::op_relu:
      return pick_unary<V_relu>(sources[0]);
    case Op::op_neg:
      return pick_unary<V_neg>(sources[0]);
    case Op::op_reciprocal:
      return pick_unary<V_reciprocal>(sources[0]);
    case Op::op_round:
      return pick_unary<V_function<rounded<Rounding::nearest>>>(sources[0]);
    case Op::op_floor:
      return pick_unary<V_function<rounded<Rounding::down>>>(sources[0]);
    case Op::op_ceil:
      return pick_unary<V_function<rounded<Rounding::up>>>(sources[0]);
#define ONNXFUSE_FUNCTION(name) \
  case Op::op_##name:           \
    return pick_function<value_of<P_##name>>(sources[0]);
      ONNXFUSE_FUNCTION(abs)
      ONNXFUSE_FUNCTION(sqrt)
      ONNXFUSE_FUNCTION(expm1)
      ONNXFUSE_FUNCTION(log)
      ONNXFUSE_FUNCTION(log1p)
      ONNXFUSE_FUNCTION(softplus)
      ONNXFUSE_FUNCTION(round_f16)
      ONNXFUSE_FUNCTION(round_bf16)
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
    case Op::op_exp:
      return pick_unary<V_function<vector_exp>>(sources[0]);
    case Op::op_sigmoid:
      return pick_unary<V_function<vector_sigmoid>>(sources[0]);
    case Op::op_erf:
      return pick_unary<V_function<vector_erf>>(sources[0]);
    case Op::op_tanh:
      return pick_unary<V_function<vector_tanh>>(sources[0]);
#else
      ONNXFUSE_FUNCTION(exp)
      ONNXFUSE_FUNCTION(sigmoid)
      ONNXFUSE_FUNCTION(erf)
      ONNXFUSE_FUNCTION(tanh)
#endif
#undef ONNXFUSE_FUNCTION
    default:
      return nullptr;
  }
}

template <class F, Source a>
static Stage pick_comparison_second(Source b) {
  ONNXFUSE_BY_SOURCE(b, (comparison_stage<F, a, S>))
}
template <class F>
static Stage pick_comparison(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[0], (pick_comparison_second<F, S>(sources[1])))
}

template <class F>
static Stage pick_test(Source a) {
  ONNXFUSE_BY_SOURCE(a, (comparison_stage<F, S, S, 0>))
}

static Stage pick_stage_of_comparison(Op op, const Source* sources) {
  switch (op) {
    case Op::op_equal:
      return pick_comparison<V_equal>(sources);
    case Op::op_less:
      return pick_comparison<V_less>(sources);
    case Op::op_less_equal:
      return pick_comparison<V_less_equal>(sources);
    case Op::op_greater:
      return pick_comparison<V_greater>(sources);
    case Op::op_greater_equal:
      return pick_comparison<V_greater_equal>(sources);
    case Op::op_isnan:
      return pick_test<V_isnan>(sources[0]);
    case Op::op_isinf:
      return pick_test<V_isinf>(sources[0]);
    default:
      return nullptr;
  }
}

template <class T, class P>
static Stage pick_integer_comparison(const Source* sources) {
  const bool a = sources[0] == kElement, b = sources[1] == kElement;
  return a ? (b ? nullptr : integer_comparison_stage<P, T, true, false>)
           : (b ? integer_comparison_stage<P, T, false, true> : integer_comparison_stage<P, T, false, false>);
}

template <class T>
static Stage pick_stage_of_integers(Op op, const Source* sources) {
  switch (op) {
    case Op::op_equal:
      return pick_integer_comparison<T, P_equal>(sources);
    case Op::op_less:
      return pick_integer_comparison<T, P_less>(sources);
    case Op::op_less_equal:
      return pick_integer_comparison<T, P_less_equal>(sources);
    case Op::op_greater:
      return pick_integer_comparison<T, P_greater>(sources);
    case Op::op_greater_equal:
      return pick_integer_comparison<T, P_greater_equal>(sources);
    default:
      return nullptr;
  }
}

template <class F, Source a>
static Stage pick_logic_second(Source b) {
  return b == kBlockSource ? logic_stage<F, a, kBlockSource> : b == kMemory ? logic_stage<F, a, kMemory> : nullptr;
}
template <class F>
static Stage pick_logic(Source a, Source b) {
  return a == kBlockSource ? pick_logic_second<F, kBlockSource>(b)
         : a == kMemory    ? pick_logic_second<F, kMemory>(b)
                           : nullptr;
}

static Stage pick_stage_of_logic(Op op, const Source* sources) {
  switch (op) {
    case Op::op_not:
      return sources[0] == kBlockSource ? logic_stage<V_not, kBlockSource, kBlockSource, 0>
                                        : logic_stage<V_not, kMemory, kMemory, 0>;
    case Op::op_and:
      return pick_logic<V_and>(sources[0], sources[1]);
    case Op::op_or:
      return pick_logic<V_or>(sources[0], sources[1]);
    case Op::op_xor:
      return pick_logic<V_xor>(sources[0], sources[1]);
    default:
      return nullptr;
  }
}

template <Source condition, Source a>
static Stage pick_where_third(Source b) {
  ONNXFUSE_BY_SOURCE(b, (where_stage<condition, a, S>))
}
template <Source condition>
static Stage pick_where_second(const Source* sources) {
  ONNXFUSE_BY_SOURCE(sources[1], (pick_where_third<condition, S>(sources[2])))
}
static Stage pick_where(const Source* sources) {
  return sources[0] == kBlockSource ? pick_where_second<kBlockSource>(sources)
         : sources[0] == kMemory    ? pick_where_second<kMemory>(sources)
                                    : nullptr;
}

static Stage pick_fold(Op op, Source a) {
  switch (op) {
    case Op::op_reduce_max:
      return a == kBlockSource ? extreme_stage<Maximum, kBlockSource> : extreme_stage<Maximum, kMemory>;
    case Op::op_reduce_min:
      return a == kBlockSource ? extreme_stage<Minimum, kBlockSource> : extreme_stage<Minimum, kMemory>;
    default:
      return a == kBlockSource ? sum_stage<kBlockSource> : sum_stage<kMemory>;
  }
}

static Stage pick_accumulate(Op op, Source a) {
  switch (op) {
    case Op::op_reduce_max:
      return a == kBlockSource ? best_of_columns_stage<V_max, kBlockSource> : best_of_columns_stage<V_max, kMemory>;
    case Op::op_reduce_min:
      return a == kBlockSource ? best_of_columns_stage<V_min, kBlockSource> : best_of_columns_stage<V_min, kMemory>;
    default:
      return a == kBlockSource ? add_to_columns_stage<kBlockSource> : add_to_columns_stage<kMemory>;
  }
}

static StageFn find_stage(Work work, Op op, const Source* sources) {
  Stage stage = nullptr;
  switch (work) {
    case Work::primitive:
      stage = pick_stage_of_primitive(op, sources);
      break;
    case Work::comparison:
      stage = pick_stage_of_comparison(op, sources);
      break;
    case Work::comparison_of_i32:
      stage = pick_stage_of_integers<int32_t>(op, sources);
      break;
    case Work::comparison_of_i64:
      stage = pick_stage_of_integers<int64_t>(op, sources);
      break;
    case Work::logic:
      stage = pick_stage_of_logic(op, sources);
      break;
    case Work::where:
      stage = pick_where(sources);
      break;
    case Work::multiply_add:
      stage = pick_multiply_add(sources);
      break;
    case Work::exp_of_difference:
      stage = pick_exp_of_difference(sources);
      break;
    case Work::share:
      if (sources[1] == kElement && sources[0] != kElement) stage = pick_divide<&Divisor::share>(sources[0]);
      break;
    case Work::exp_and_sum:
      stage = pick_exp_and_sum<false>(sources);
      break;
    case Work::exp_store_and_sum:
      stage = pick_exp_and_sum<true>(sources);
      break;
    case Work::fold:
    case Work::fold_products:  // after a step that multiplies
      stage = pick_fold(op, sources[0]);
      break;
    case Work::accumulate:
      stage = pick_accumulate(op, sources[0]);
      break;
    case Work::ask:
      stage = ask_stage;
      break;
    case Work::load:
      stage = sources[0] == kMemory ? unary_stage<V_identity, kMemory> : unary_stage<V_identity, kElement>;
      break;
    case Work::load_f16:
      stage = load_stage<uint16_t, load_half>;
      break;
    case Work::load_bf16:
      stage = load_stage<uint16_t, convert_loop<float, uint16_t, bfloat_to_float>>;
      break;
    case Work::load_bool:
      stage = sources[0] == kBlockSource ? load_bool_stage<kBlockSource> : load_bool_stage<kMemory>;
      break;
    case Work::load_u8:
      stage = load_byte_stage<uint8_t>;
      break;
    case Work::load_i8:
      stage = load_byte_stage<int8_t>;
      break;
    case Work::load_i32:
      stage = load_stage<int32_t, cast_loop<float, int32_t>>;
      break;
    case Work::load_i64:
      stage = load_stage<int64_t, cast_loop<float, int64_t>>;
      break;
    case Work::store:
      stage = store_stage;
      break;
    case Work::stream:
      stage = stream_stage;
      break;
    case Work::store_f16:
      stage = narrow_stage<store_half>;
      break;
    case Work::store_bf16:
      stage = narrow_stage<convert_loop<uint16_t, float, float_to_bfloat>>;
      break;
    case Work::store_bool:
      stage = store_bool_stage;
      break;
    case Work::store_byte:
      stage = store_byte_stage;
      break;
    case Work::end:
      stage = last_stage;
      break;
    default:
      break;
  }
  return reinterpret_cast<StageFn>(stage);
}

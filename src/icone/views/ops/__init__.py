"""Operations that the pipelines of views are made of: crop, colour, blur, resampling."""
